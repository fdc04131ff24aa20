/* Put it all together. */

const data = JSON.parse(document.getElementById('data').textContent);
const main = document.getElementById('main');

/**
 * The sample to open on. Counted are its detected or segmented regions that a sentence probably
 * describes (probability at least one half; without probabilities every pair), up to four. Among
 * equals: the largest share of sentences that have such a region, then the highest mean.
 */
function exemplar(samples) {
  const rank = (sample) => {
    const probable = sample.pairs.filter((pair) => !pair.none && (pair.p ?? 1) >= 0.5
      && !['quadrant', 'centre'].includes(sample.regions[pair.r].source));
    const mean = probable.reduce((sum, pair) => sum + (pair.p ?? pair.sim ?? 0), 0) / Math.max(probable.length, 1);
    return [sample.image ? 1 : 0, Math.min(new Set(probable.map((pair) => pair.r)).size, 4),
      probable.length / Math.max(sample.matrix.length, 1), mean];
  };
  const before = (a, b) => { const at = a.findIndex((value, i) => value !== b[i]); return at >= 0 && a[at] > b[at]; };
  const best = samples.map((sample) => [rank(sample), sample]).reduce((x, y) => (x && !before(y[0], x[0]) ? x : y), null);
  return best && best[0][0] ? best[1] : null;
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
  if (data.kind === 'learning' || data.kind === 'unfinished') {
    document.getElementById('foot').append(h('p', {}, `Made by glit ${data.glit}.${data.kind === 'learning' ? ' Similarities are cosines, not probabilities.' : ''}`));
    return;
  }
  const files = pairsFromFiles();
  const caution = (files.some(Boolean) ? 'Where pairs were read from files, a similarity is 1 for a pair of the file, else 0; it is no cosine. ' : '')
    + (files.every(Boolean) ? '' : 'Captions and regions that models made contain mistakes; similarities are cosines, not probabilities. ');
  document.getElementById('foot').append(h('p', {}, `Made by glit ${data.glit}. ${caution}`, data.kind === 'explain' && !data.sample ? '' : h('span', { class: 'keys' },
    data.kind === 'explain' ? [] : [h('kbd', {}, '/'), ' search · ', h('kbd', {}, 'j'), ' ', h('kbd', {}, 'k'), ' next and previous sample · ', data.kind === 'compare' ? null : [h('kbd', {}, 't'), ' tag · ']].flat(),
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

/** On a phone, samples come before pages of statistics. */
function samplesFirst(numbers, samples) {
  return matchMedia('(max-width: 40rem)').matches ? [...samples, ...numbers] : [...numbers, ...samples];
}

function report() {
  document.title = `${data.title}, recipe ${data.story.recipe} · glit`;
  const best = exemplar(data.samples);
  const numbers = [leftOut(data), distributions(data)];
  const samples = gallery(data, inPage(data.samples, data.dropped));
  main.append(hero(data, best ? card(best, { featured: true, heading: 'h2' }) : null), ...samplesFirst(numbers, [samples]));
  navigation([['origin', 'How it was built'], ...samplesFirst([['dropped', 'Dropped'], ['numbers', 'Statistics']], [['samples', 'Samples']])]);
}

/** The first samples at once; what is counted over everything follows. */
async function serve() {
  document.title = `${data.title}, recipe ${data.story.recipe} · glit`;
  const head = h('div', {}, hero(data, null));
  const counted = h('div', {}, leftOutSoon());
  let best = null;
  let numbers = {};
  const draw = () => head.replaceChildren(hero({ ...data, ...numbers }, best));
  const shelf = gallery(data, withServer, (samples) => {
    const chosen = exemplar(samples);
    best = chosen && card(chosen, { featured: true, heading: 'h2' });
    draw();
  });
  main.append(head, ...samplesFirst([counted, ...(data.embeddings ? [mapSection(data)] : [])], [shelf]));
  navigation([['origin', 'How it was built'], ...samplesFirst([['dropped', 'Dropped'], ['numbers', 'Statistics'], ...(data.embeddings ? [['map', 'Map']] : [])], [['samples', 'Samples']])]);
  const answer = await fetch('numbers');
  if (!answer.ok) { counted.replaceChildren(h('p', { class: 'lead' }, await answer.text())); return; }
  numbers = await answer.json();
  document.dispatchEvent(new CustomEvent('glit-numbers', { detail: numbers }));
  draw();
  counted.replaceChildren(leftOut({ ...data, ...numbers }), distributions({ ...data, ...numbers }));
}

function leftOutSoon() {
  return h('section', { id: 'dropped' }, h('p', { class: 'lead', role: 'status' }, 'Counting sentences, regions and pairs …'));
}

function compare() {
  document.title = `${data.sides[0].title} against ${data.sides[1].title} · glit`;
  main.append(comparison(data), duels(data));
  navigation([['top', 'Overview'], ['samples', 'Side by side']]);
}

function explain() {
  document.title = `${data.name} · glit`;
  main.append(...explanation(data));
}

function unfinished() {
  document.title = `${data.title} · glit`;
  const rows = data.stages.map((stage) => h('tr', {}, h('th', { scope: 'row' }, stage.stage),
    h('td', {}, `${count(stage.chunks_done)} of ${count(stage.chunks_total)}`), h('td', {}, count(stage.rows))));
  const reasons = data.reasons.map((each) => h('tr', {}, h('th', { scope: 'row' }, h('code', {}, each.why)),
    h('td', {}, each.meaning), h('td', {}, count(each.number))));
  const head = (names) => h('thead', {}, h('tr', {}, names.map((name) => h('th', { scope: 'col' }, name))));
  const rest = data.dropped - data.drops.length;
  main.append(
    h('section', {}, h('p', { class: 'kicker' }, 'Not finished'), h('h1', { class: 'title' }, data.title),
      h('p', { class: 'lead' }, `${counted(data.dropped, 'images')} dropped${data.empty ? ', and nothing was shipped. Once fixed, run glit retry.' : ` so far. Run glit build again to go on${data.command ? ':' : '.'}`}`),
      data.command && !data.empty ? h('p', { class: 'lead' }, h('code', {}, data.command)) : null,
      h('table', { class: 'table' }, head(['Stage', 'Chunks', 'Rows']), h('tbody', {}, rows))));
  if (!data.dropped) return;
  main.append(h('section', { id: 'dropped', 'aria-labelledby': 'dropped-title' }, h('h2', { id: 'dropped-title' }, 'Dropped'),
    reasons.length ? h('table', { class: 'table' }, head(['Reason', 'Meaning', 'Images']), h('tbody', {}, reasons)) : null,
    h('div', { class: 'reasons' }, h('div', { class: 'cards' }, data.drops.map((item) => droppedCard({ ...item, id: '' })))),
    rest > 0 ? h('p', { class: 'lead' }, `and ${count(rest)} more: glit query lists them`) : null));
  navigation([['dropped', 'Dropped']]);
}

themes();
unfoldForPrint();
({ report, serve, compare, explain, unfinished, learning: () => learning(data) })[data.kind]();
footer();
