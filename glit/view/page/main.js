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
  document.getElementById('foot').append(h('p', {},
    `Made by glit ${data.glit}. Captions and regions that models made contain mistakes; similarities are cosines, not probabilities. `,
    h('kbd', {}, '/'), ' search · ', h('kbd', {}, 'j'), ' ', h('kbd', {}, 'k'), ' next and previous sample · ',
    h('kbd', {}, '←'), ' ', h('kbd', {}, '→'), ' sentences · ', h('kbd', {}, 'Enter'), ' hold · ', h('kbd', {}, 'Esc'), ' let go'));
}

function report() {
  document.title = `${data.name} · glit`;
  const best = exemplar(data.samples);
  main.append(
    hero(data, best ? card(best, { featured: true, heading: 'h2' }) : null),
    leftOut(data), distributions(data), gallery(data, inPage(data.samples)));
  navigation([['origin', 'How it came to be'], ['left-out', 'Left out'], ['numbers', 'In numbers'], ['samples', 'Samples']]);
}

themes();
report();
footer();
