/* The filters of the gallery as a condition in SQL on the columns of `samples`. */

function conditionOf(asked, ids, where = '') {
  const quoted = (words) => `'${words.replaceAll("'", "''")}'`;
  const chosen = 'list_filter(pairs, lambda p: NOT p.global_wins)';
  const best = `list_max(list_transform(${chosen}, lambda p: p.similarity::DOUBLE))`;
  const parts = where.trim() ? [`(${where.trim()}${where.includes('--') ? '\n' : ''})`] : [];
  if (asked.text) {
    const words = quoted(asked.text);
    parts.push(`(contains(lower(caption), ${words}) OR contains(lower(source_path), ${words}) OR starts_with(sample_id, ${words}))`);
  }
  for (const key of ['source', 'label']) {
    if (asked[key]) parts.push(`list_contains(list_transform(${chosen}, lambda p: regions[p.region + 1].${key}), ${quoted(asked[key])})`);
  }
  if (asked.from !== null) parts.push(`${best} >= ${asked.from}::DOUBLE`);
  if (asked.upTo !== null) parts.push(`${best} <= ${asked.upTo}::DOUBLE`);
  if (asked.kind) parts.push(`len(sentences) ${asked.kind === 'alone' ? '>' : '='} len(${chosen})`);
  if (asked.tag) parts.push(`sample_id IN (${ids.map(quoted).join(', ')})`);
  return parts.join(' AND ');
}

/** A word of a shell's command line. */
function shellWord(words) {
  return /["$`\\!]/.test(words) ? `'${words.replaceAll("'", "'\\''")}'` : `"${words}"`;
}

/** The present filters as an option that can be copied. */
function whereOf(data) {
  const said = h('input', { readonly: true, 'aria-label': 'The filters as an option', onfocus: () => said.select() });
  const copy = h('button', { type: 'button', class: 'copy', onclick: () => { said.select(); document.execCommand('copy'); copy.textContent = 'Copied'; } }, 'Copy');
  let ids = [];
  const file = h('button', { type: 'button', class: 'copy', onclick: () => download('ids.txt', `${ids.join('\n')}\n`) }, 'Download the ids');
  const shown = h('p', { class: 'where', hidden: true }, h('span', {}, 'All of the dataset with these filters, for glit view and glit export: '), said, copy, file);
  shown.tell = (asked, tagged) => {
    ids = tagged;
    const condition = asked.why ? '' : conditionOf(asked, ids, data.selection.where);
    const long = ids.length > MOST_IN_A_LINE;
    said.value = long ? `${count(ids.length)} ids are too many for a command line` : `--where ${shellWord(condition)}`;
    copy.hidden = long;
    file.hidden = !asked.tag;
    copy.textContent = 'Copy';
    shown.hidden = !condition;
  };
  return shown;
}
