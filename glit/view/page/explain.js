/* One image from file to pair. */

function explanation(data) {
  const { found } = data;
  const fact = ([name, value]) => h('tr', {}, h('th', { scope: 'row' }, name), h('td', {}, value));
  const facts = [['File', found.path], ['SHA-256', h('code', {}, found.sample_id || 'never read')]];
  let lead;
  if (found.outcome === 'dropped') {
    lead = `It is not in ${found.dataset}: ${found.stage} dropped it.`;
    facts.push(['Reason', `${found.reason}: ${found.meaning}`], ['Message', found.message], ['Tries before', String(found.attempt)]);
  } else if (found.outcome === 'duplicate') {
    lead = `It is not in ${found.dataset}: ${found.kind === 'exact' ? 'it has the same bytes as' : 'it looks the same as'} ${found.kept_path}.`;
  } else {
    lead = `Row ${count(found.row)} of ${found.dataset}, from file to pair.`;
    const { caption } = found;
    facts.push(['Picture', `${found.width} × ${found.height} pixels, ${bytes(found.bytes)}`],
      ['Caption', [caption.kind, caption.model, caption.revision, caption.trimmed ? 'cut at the token limit, ended at its last sentence' : ''].filter(Boolean).join(' · ')]);
    if (found.prompt) facts.push(['Prompt', found.prompt]);
    if (found.duplicates.length) facts.push(['Its duplicates', found.duplicates.map((copy) => `${copy.path} (${copy.kind})`).join(', ')]);
  }
  facts.push(['Recipe', found.recipe]);
  if (found.rule) facts.push(['Rule of pairing', found.rule]);
  for (const step of found.steps) if (step.title !== 'Pairs') facts.push([step.title, stepWords(step)]);
  facts.push(['Fingerprints', h('code', {}, Object.entries(found.fingerprints).map(([step, print]) => `${step}-${print}`).join(' '))]);
  const parts = [h('section', {}, h('p', { class: 'kicker' }, 'One image'), h('h1', { class: 'title' }, found.path), h('p', { class: 'lead' }, lead))];
  if (data.image) parts.push(h('figure', { class: 'original' }, h('img', { src: data.image, alt: found.path })));
  if (data.sample) parts.push(h('div', { class: 'cards' }, card(data.sample, { heading: 'h2', link: false, boxes: 'all' })));
  if (data.sample && found.rule) parts.push(reasonsOf(data));
  parts.push(h('section', { 'aria-labelledby': 'facts' }, h('h2', { id: 'facts' }, 'Where it comes from'), h('table', { class: 'table' }, h('tbody', {}, facts.map(fact)))));
  return parts;
}

/** On a phone the rows are stacked, each cell after the name of its column. */
function reasonsOf({ found, why }) {
  const names = ['', 'Sentence', 'Tokens', 'Region', 'Next best'];
  const row = (cells) => h('tr', { role: 'row' }, cells.map((words, at) => h('td', { role: 'cell', 'data-name': names[at], class: at === 1 ? 'said' : null }, words)));
  const rows = found.sentences.map((sentence, at) => row([String(at + 1), sentence.text,
    `${sentence.tokens[0]}–${sentence.tokens[1]}${sentence.in_window ? '' : ', outside the window'}`, upper(why[at].replace(/^-> /, '')),
    sentence.next_best.map((next) => `region ${next.region + 1} (${cosine(next.similarity)})`).join(', ') || '–']));
  const head = names.map((name) => (name ? h('th', { scope: 'col', role: 'columnheader' }, name) : h('td', { role: 'cell' })));
  return h('section', { 'aria-labelledby': 'why' }, h('h2', { id: 'why' }, 'Why these pairs'),
    h('p', { class: 'lead' }, 'Sentences and regions are numbered from 1 here; files, JSON and SQL count from 0.'),
    h('table', { class: 'table stacked', role: 'table', 'aria-labelledby': 'why' },
      h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, head)), h('tbody', { role: 'rowgroup' }, rows)));
}
