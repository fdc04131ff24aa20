/* Two datasets side by side. */

const KIND_WORDS = {
  same: 'the same region', other: 'another region', only_a: 'a region only in A', only_b: 'a region only in B',
  neither: 'no region in either', reworded: 'a sentence that the other does not have',
};

function comparison(data) {
  const [a, b] = data.sides;
  const all = Object.values(data.kinds).reduce((sum, number) => sum + number, 0);
  const agree = all ? (data.kinds.same + data.kinds.neither) / all : 1;
  const rows = Object.entries(data.kinds).filter(([, number]) => number).map(([kind, number]) => {
    const bar = h('i');
    bar.style.width = `${(number / all) * 100}%`;
    return h('div', {},
      h('div', { class: 'name' }, KIND_WORDS[kind], h('span', {}, `${count(number)} · ${percent(number / all)}`)),
      h('div', { class: `track ${kind === 'same' || kind === 'neither' ? 'of-all' : ''}`, 'aria-hidden': 'true' }, bar));
  });
  const chance = data.compared < data.common ? ` ${count(data.compared)} of them, drawn by chance (seed ${data.seed}), were compared.` : '';
  return h('section', { class: 'hero', id: 'top' },
    h('div', { class: 'intro' },
      h('p', { class: 'kicker' }, 'Two datasets, one set of images'),
      h('h1', {}, 'A ', h('span', { class: 'a-side' }, a.title), ' · B ', h('span', { class: 'b-side' }, b.title)),
      h('p', { class: 'lead' }, `They agree on ${percent(agree)} of the sentences of ${counted(data.common, 'images')} that both have.${chance} `
        + 'Two boxes are the same choice when they overlap by half (IoU).'),
      [a, b].map((side, at) => (side.caution ? h('p', { class: 'caution' }, `${'AB'[at]}: ${side.caution}`) : null))),
    h('div', { class: 'exhibit' }, h('div', { class: 'chart' }, h('h2', {}, 'What they say of a sentence'), h('div', { class: 'shares' }, rows))),
    h('div', { class: 'origin', id: 'origin' }, h('h2', {}, 'How they differ'), sideTable(a, b)));
}

function sideTable(a, b) {
  const median = (side, name) => {
    const chart = side.charts.find((each) => each.name === name);
    return chart ? String(Number(chart.median.toFixed(3))) : '–';
  };
  const rows = [
    ['Recipe', a.story.recipe, b.story.recipe],
    ...stepTitles(a, b).map((title) => [title, sideSteps(a, title), sideSteps(b, title)]),
    ['Images', count(a.totals.images), count(b.totals.images)],
    ['Sentences', count(a.totals.sentences), count(b.totals.sentences)],
    ['Regions', count(a.totals.regions), count(b.totals.regions)],
    ['With a region', count(a.totals.pairs), count(b.totals.pairs)],
    [`Median ${measure()}`, median(a, 'similarity'), median(b, 'similarity')],
  ];
  return h('table', { class: 'table' },
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, h('span', { class: 'hush' }, 'What')), h('th', { scope: 'col' }, 'A'), h('th', { scope: 'col' }, 'B'))),
    h('tbody', {}, rows.map(([name, left, right]) => h('tr', { class: left === right ? 'equal' : null },
      h('th', { scope: 'row' }, name), h('td', {}, left), h('td', {}, right)))));
}

function stepTitles(a, b) {
  return [...new Set([a, b].flatMap((side) => side.story.steps.map((step) => step.title)))];
}

function sideSteps(side, title) {
  return side.story.steps.filter((step) => step.title === title).map(stepWords).join('; ') || '–';
}

function stepWords(step) {
  return [step.how, step.model].filter(Boolean).join(' · ');
}

function duels(data) {
  const cards = h('div', { class: 'cards' });
  const more = h('button', { class: 'more', type: 'button' }, 'Show more');
  const tally = h('p', { class: 'tally', role: 'status' });
  let text = '';
  let only = '';
  let shown = 0;
  const low = data.samples.map((sample) => sample.sides.map((side) => `${captionOf(side)}\n${side.path}`).join('\n').toLowerCase());
  const load = (anew) => {
    const fits = data.samples.filter((sample, at) => low[at].includes(text) && (only === '' || (only === 'apart') === (sample.difference > 0)));
    if (anew) { shown = 0; cards.replaceChildren(); }
    cards.append(...fits.slice(shown, shown + PAGE).map((sample) => duel(data, sample, text)));
    shown = Math.min(fits.length, shown + PAGE);
    if (!fits.length) cards.append(h('p', { class: 'nothing' }, 'No sample is like that.'));
    more.hidden = shown >= fits.length;
    tally.textContent = `${count(fits.length)} of ${counted(data.samples.length, 'samples')}, the greatest difference first`;
  };
  const search = h('input', { type: 'search', placeholder: 'words, a file name', oninput: (event) => { text = event.target.value.trim().toLowerCase(); load(true); } });
  more.addEventListener('click', () => load(false));
  new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting) && !more.hidden) load(false); }, { rootMargin: '900px' }).observe(more);
  window.addEventListener('beforeprint', () => { while (!more.hidden) load(false); });
  document.addEventListener('keydown', (event) => galleryKey(event, search, cards, () => (more.hidden ? null : load(false))));
  load(true);
  return h('section', { id: 'samples', 'aria-labelledby': 'samples-title' },
    h('h2', { id: 'samples-title' }, 'Side by side'),
    h('p', { class: 'lead' }, 'A Δ stands before a sentence about which the two disagree.'),
    h('div', { class: 'tools', role: 'search', 'aria-label': 'Samples' },
      h('label', { class: 'search' }, 'Search', search),
      h('label', {}, 'Samples', h('select', { onchange: (event) => { only = event.target.value; load(true); } },
        [['', 'all'], ['apart', 'that differ'], ['alike', 'that agree']].map(([value, words]) => h('option', { value }, words))))),
    tally, cards, more);
}

/** Colours by sentence: the same words have the same on both sides. */
function sharedHues(sides) {
  const hueOf = new Map();
  return sides.map((side) => {
    const wordsOf = new Map(side.parts.map(([words, s]) => [s, words]));
    const paired = new Set(side.pairs.filter((pair) => !pair.none).map((pair) => pair.s));
    const times = new Map();
    return side.matrix.map((_, s) => {
      const words = wordsOf.get(s);
      times.set(words, (times.get(words) || 0) + 1);
      const key = `${times.get(words)} ${words}`;
      if (!paired.has(s)) return null;
      if (!hueOf.has(key)) hueOf.set(key, HUES[hueOf.size % HUES.length]);
      return hueOf.get(key);
    });
  });
}

function duel(data, sample, query) {
  const hues = sharedHues(sample.sides);
  const sides = sample.sides.map((side, at) => {
    const shown = side.image_of === undefined ? side : { ...side, image: sample.sides[side.image_of].image };
    const one = card(shown, { hues: hues[at], query, link: false, heading: 'h4', apart: new Set(sample.apart[at]) });
    one.querySelector('h4').textContent = `${'AB'[at]} · ${data.sides[at].title}`;
    return one;
  });
  const alone = sample.apart[0].length || sample.apart[1].length;
  return h('section', { class: 'duel', 'aria-label': sample.sides[0].path },
    h('div', { class: 'top' }, h('h3', {}, sample.sides[0].path), h('span', {}, alone ? `they differ on ${percent(sample.difference)} of the sentences` : 'they agree')),
    h('div', { class: 'two' }, sides));
}
