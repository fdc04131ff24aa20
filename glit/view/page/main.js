/* Put it all together. */

const data = JSON.parse(document.getElementById('data').textContent);
const main = document.getElementById('main');

/** The sample that shows best what the dataset is: many objects of its own, well matched. */
function exemplar(samples) {
  const worth = (sample) => {
    const pairs = sample.pairs.filter((pair) => !pair.none && !['quadrant', 'centre'].includes(sample.regions[pair.r].source));
    const regions = new Set(pairs.map((pair) => pair.r)).size;
    const clear = pairs.reduce((sum, pair) => sum + (pair.p ?? pair.sim ?? 0), 0) / Math.max(pairs.length, 1);
    return sample.image ? Math.min(regions, 4) + clear - Math.max(0, sample.matrix.length - 10) * 0.3 : -1;
  };
  return samples.reduce((best, sample) => (best && worth(best) >= worth(sample) ? best : sample), null);
}

function themes() {
  const button = document.getElementById('theme');
  const words = { '': 'as the system has them', light: 'light', dark: 'dark' };
  let now = '';
  button.addEventListener('click', () => {
    const systemDark = matchMedia('(prefers-color-scheme: dark)').matches;
    now = { '': systemDark ? 'light' : 'dark', light: systemDark ? 'dark' : '', dark: systemDark ? '' : 'light' }[now];
    document.documentElement.style.colorScheme = now || 'light dark';
    button.setAttribute('aria-label', `Colours: ${words[now]}`);
    document.dispatchEvent(new Event('glit-theme'));
  });
}

function navigation(parts) {
  document.getElementById('nav').append(...parts.map(([id, words]) => h('a', { href: `#${id}` }, words)));
}

function footer() {
  if (data.kind === 'learning') {
    document.getElementById('foot').append(h('p', {}, `Made by glit ${data.glit}. Similarities are cosines, not probabilities.`));
    return;
  }
  document.getElementById('foot').append(h('p', {},
    `Made by glit ${data.glit}. Captions and regions that models made contain mistakes; similarities are cosines, not probabilities. `, data.kind === 'explain' && !data.sample ? '' : h('span', { class: 'keys' },
    data.kind === 'explain' ? [] : [h('kbd', {}, '/'), ' search · ', h('kbd', {}, 'j'), ' ', h('kbd', {}, 'k'), ' next and previous sample · '],
    h('kbd', {}, '←'), ' ', h('kbd', {}, '→'), ' sentences · ', h('kbd', {}, 'Enter'), ' hold · ', h('kbd', {}, 'Esc'), ' let go')));
}

/** What is folded is read on paper as well. */
function unfoldForPrint() {
  let folded = [];
  window.addEventListener('beforeprint', () => {
    folded = [...document.querySelectorAll('details:not([open])')];
    folded.forEach((each) => { each.open = true; });
  });
  window.addEventListener('afterprint', () => folded.forEach((each) => { each.open = false; }));
}

function report() {
  document.title = `${data.name} · glit`;
  const best = exemplar(data.samples);
  main.append(
    hero(data, best ? card(best, { featured: true, heading: 'h2' }) : null),
    leftOut(data), distributions(data), gallery(data, inPage(data.samples, data.dropped)));
  navigation([['origin', 'How it came to be'], ['left-out', 'Left out'], ['numbers', 'In numbers'], ['samples', 'Samples']]);
}

/** The first samples at once; what is counted over everything follows. */
async function serve() {
  document.title = `${data.name} · glit`;
  const head = h('div', {}, hero(data, null));
  const counted = h('div', {}, leftOutSoon());
  let best = null;
  let numbers = {};
  const draw = () => head.replaceChildren(hero({ ...data, ...numbers }, best));
  main.append(head, counted, gallery(data, withServer, (samples) => {
    const chosen = exemplar(samples);
    best = chosen && card(chosen, { featured: true, heading: 'h2' });
    draw();
  }));
  navigation([['origin', 'How it came to be'], ['left-out', 'Left out'], ['numbers', 'In numbers'], ['samples', 'Samples']]);
  const answer = await fetch('numbers');
  if (!answer.ok) { counted.replaceChildren(h('p', { class: 'lead' }, await answer.text())); return; }
  numbers = await answer.json();
  document.dispatchEvent(new CustomEvent('glit-numbers', { detail: numbers }));
  draw();
  counted.replaceChildren(leftOut({ ...data, ...numbers }), distributions({ ...data, ...numbers }));
}

function leftOutSoon() {
  return h('section', { id: 'left-out' }, h('p', { class: 'lead', role: 'status' }, 'Counting sentences, regions and pairs …'));
}

function compare() {
  document.title = `${data.sides[0].name} against ${data.sides[1].name} · glit`;
  main.append(comparison(data), duels(data));
  navigation([['top', 'Overview'], ['samples', 'Side by side']]);
}

function explain() {
  document.title = `${data.name} · glit`;
  main.append(...explanation(data));
}

themes();
unfoldForPrint();
({ report, serve, compare, explain, learning: () => learning(data) })[data.kind]();
footer();
