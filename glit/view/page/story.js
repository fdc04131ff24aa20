/* The head of the page, how the dataset was built, and what was dropped. */

function hero(data, featured) {
  const { totals, story } = data;
  const ofRegions = () => [[count(totals.regions), 'regions'], [count(totals.pairs), 'pairs'],
    [percent(totals.sentences ? totals.pairs / totals.sentences : 0), 'sentences with a region']];
  const rows = totals
    ? [[count(totals.images), 'images'], [count(totals.sentences), 'sentences'], ...(story.rule ? ofRegions() : [])]
    : [[count(data.counts.shipped), 'images']];
  rows.push([bytes(story.bytes), `on disk, ${counted(story.files, 'files')}`]);
  const figures = rows.map(([number, name]) => h('div', {}, h('dt', {}, name), h('dd', {}, number)));
  return h('section', { class: 'hero', id: 'top' },
    h('div', { class: 'intro' },
      h('p', { class: 'kicker' }, story.rule ? 'Region-grounded captions' : 'Captions'),
      h('h1', {}, data.title),
      h('p', { class: 'lead' }, summary(data)),
      data.caution ? h('p', { class: 'caution' }, data.caution) : null,
      h('dl', { class: 'figures' }, figures)),
    featured ? h('div', { class: 'exhibit' }, featured) : null, origin(data));
}

/** A few sentences for somebody who has never heard of it. */
function summary({ totals, counts, story }) {
  const per = totals && totals.images ? Math.round(totals.sentences / totals.images) : 0;
  if (!story.rule) return `${counted(counts.shipped, 'images')}, each with a caption${per ? ` of about ${counted(per, 'sentences')}` : ''}, and no regions.`;
  if (!totals) return `${counted(counts.shipped, 'images')}, each with a long caption. Point at a sentence, or at a box.`;
  const share = totals.without
    ? `Of the ${count(totals.sentences)} sentences, ${count(totals.pairs)} were` : 'Every one was';
  return `${counted(totals.images, 'images')}, each with a long caption of about `
    + `${per} sentences. ${share} given a part of the picture. `
    + 'Point at a sentence, or at a box.';
}

function origin(data) {
  const { story } = data;
  const steps = story.steps.map((step) => h('li', {},
    h('h3', {}, step.title), step.model ? h('code', {}, step.model) : null,
    h('p', {}, [step.how, step.model && step.revision ? `revision ${step.revision.slice(0, 12)}` : step.revision,
      step.licence].filter(Boolean).join(' · '))));
  return h('div', { class: 'origin', id: 'origin' },
    h('h2', {}, 'How it was built'),
    h('p', { class: 'lead' }, 'Recipe ', h('code', {}, story.recipe), '. ', story.about || ''),
    h('ol', { class: 'steps' }, steps));
}

function leftOut(data) {
  const { counts, left_out: out } = data;
  const parts = ['shipped', 'dropped', 'duplicates'];
  const strip = h('div', { class: 'balance', 'aria-hidden': 'true' }, parts.filter((part) => counts[part]).map((part) => {
    const piece = h('i', { class: part });
    piece.style.flexGrow = counts[part];
    return piece;
  }));
  const key = h('ul', { class: 'key' }, parts.map((part) => h('li', { class: part }, h('b', {}, count(counts[part])), ` ${part}`)));
  const groups = out.drops.map((drop) => reason(`${drop.stage} / ${drop.reason}`, drop.meaning, drop))
    .concat(out.duplicates.map((kind) => reason(`${kind.kind} duplicate`,
      kind.kind === 'exact' ? 'the same bytes as another image' : 'looks the same as another image', kind)));
  return h('section', { id: 'dropped', 'aria-labelledby': 'dropped-title' },
    h('h2', { id: 'dropped-title' }, groups.length ? 'Dropped' : 'Nothing was dropped'),
    h('p', { class: 'lead' }, `Of ${counted(counts.ingested, 'images')} that were found, every one is accounted for.`),
    strip, key, groups.length ? h('div', { class: 'reasons' }, groups) : null);
}

function reason(name, meaning, group) {
  const examples = group.examples.map((example) => h('li', {}, h('code', {}, example.path), example.message || ''));
  if (group.number > group.examples.length) {
    examples.push(h('li', {}, `and ${count(group.number - group.examples.length)} more`));
  }
  return h('details', {},
    h('summary', {}, h('b', {}, name), h('span', { class: 'meaning' }, meaning), h('span', { class: 'number' }, count(group.number))),
    h('ul', {}, examples));
}
