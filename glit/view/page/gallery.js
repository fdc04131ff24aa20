/* The samples: searched, filtered, sorted, a page after the other. */

const PAGE = 20;

const MOST_PRINTED = 500;

const SORTS = {
  order: ['as in the dataset', (sample) => sample.n],
  best: ['best pair first', (sample) => -bestOf(sample)],
  worst: ['worst pair first', (sample) => bestOf(sample)],
  alone: ['most sentences without a region', (sample) => -aloneOf(sample)],
  long: ['longest caption', (sample) => -sample.parts.reduce((sum, [words]) => sum + words.length, 0)],
};

function bestOf(sample) {
  const sims = sample.pairs.filter((pair) => !pair.none).map((pair) => pair.sim ?? -1);
  return sims.length ? Math.max(...sims) : -2;
}

function aloneOf(sample) {
  return sample.pairs.filter((pair) => pair.none).length;
}

function captionOf(sample) {
  return sample.parts.map(([words]) => words).join('');
}

/** All samples are in the page, and the first drops of each reason. */
function inPage(samples, dropped) {
  const low = samples.map((sample) => `${captionOf(sample)}\n${sample.path}\n${sample.id}`.toLowerCase());
  return async (asked, from) => {
    if (asked.why) {
      const rows = dropped[asked.why].filter((row) => `${row.path}\n${row.message}\n${row.id}`.toLowerCase().includes(asked.text));
      return { total: rows.length, samples: [], dropped: rows.slice(from, from + PAGE) };
    }
    const fits = samples.filter((sample, index) => {
      const best = bestOf(sample);
      return low[index].includes(asked.text)
        && (asked.source === '' || sample.pairs.some((pair) => !pair.none && sample.regions[pair.r].source === asked.source))
        && (asked.from === null || best >= asked.from) && (asked.upTo === null || best <= asked.upTo)
        && (asked.kind === '' || (asked.kind === 'alone') === (aloneOf(sample) > 0));
    });
    const key = SORTS[asked.sort][1];
    const sorted = fits.map((sample) => [key(sample), sample]).sort((a, b) => a[0] - b[0]);
    return { total: fits.length, samples: sorted.slice(from, from + PAGE).map(([, sample]) => sample) };
  };
}

/** All samples are with the server. */
async function withServer(asked, from) {
  const words = new URLSearchParams({ first: from });
  if (asked.why) {
    words.set('why', asked.why);
    words.set('text', asked.text);
    const rows = await fetch(`dropped?${words}`);
    if (!rows.ok) throw new Error(await rows.text());
    return rows.json();
  }
  const names = { text: 'text', sort: 'sort', source: 'source', from: 'at_least', upTo: 'at_most', kind: 'kind' };
  for (const [key, name] of Object.entries(names)) {
    if (asked[key] !== '' && asked[key] !== null) words.set(name, asked[key]);
  }
  const answer = await fetch(`samples?${words}`);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

/** The reason of a drop; a duplicate is no drop. */
function droppedAs(why) {
  return why.startsWith('duplicate/') ? why : `dropped: ${why}`;
}

function gallery(data, ask, onFirst = null) {
  const asked = { text: '', sort: 'order', source: '', from: null, upTo: null, kind: '', why: '', boxes: 'chosen' };
  const cards = h('div', { class: 'cards' });
  const tally = h('p', { class: 'tally', role: 'status' });
  const more = h('button', { class: 'more', type: 'button', onclick: () => load(false) }, 'Show more');
  let shown = 0;
  let turn = 0;
  let busy = false;

  const load = async (anew) => {
    const mine = anew ? ++turn : turn;
    const from = anew ? 0 : shown;
    busy = true;
    let found;
    try {
      found = await ask({ ...asked }, from);
    } catch (error) {
      tally.textContent = error.message;
      return;
    } finally {
      busy = false;
    }
    if (mine !== turn || (!anew && from !== shown)) return;
    const { total, samples, dropped = [] } = found;
    if (anew) cards.replaceChildren();
    cards.append(...dropped.map(droppedCard));
    cards.append(...samples.map((sample) => card(sample, { boxes: asked.boxes, query: asked.text })));
    shown = from + samples.length + dropped.length;
    if (!total) cards.append(h('p', { class: 'nothing' }, 'No sample is like that.'));
    more.hidden = shown >= total;
    tools.classList.toggle('dropped-only', Boolean(asked.why));
    if (asked.why) tally.textContent = `${count(total)} of ${counted(numberOf[asked.why], 'images')} ${droppedAs(asked.why)}`;
    else tally.textContent = `${count(total)} of ${counted(data.selection.shown ?? data.selection.all, 'samples')}${selectionWords(data.selection)}`;
    if (anew && onFirst) { onFirst(samples); onFirst = null; }
  };
  const change = (key, value) => { asked[key] = value; load(true); };
  const number = (key) => (event) => {
    const value = parseFloat(event.target.value);
    change(key, Number.isFinite(value) ? value : null);
  };
  const choice = (label, key, options) => h('label', {}, label, h('select', { onchange: (event) => change(key, event.target.value) },
    options.map(([value, words]) => h('option', { value }, words))));
  let wait = 0;
  const search = h('input', {
    type: 'search', placeholder: 'words, a file name',
    oninput: (event) => { clearTimeout(wait); wait = setTimeout(() => change('text', event.target.value.trim().toLowerCase()), data.sources ? 0 : 250); },
  });
  const from = choice('Regions from', 'source', [['', 'anywhere']]);
  const offer = (sources) => from.querySelector('select').append(...sources.filter((each) => each.pairs)
    .map((each) => h('option', { value: each.source }, `${each.source} (${count(each.pairs)})`)));
  const which = choice('Show', 'why', [['', 'the dataset']]);
  const numberOf = {};
  const offerLeftOut = (out) => {
    for (const each of out.drops) numberOf[`${each.stage}/${each.reason}`] = each.number;
    for (const each of out.duplicates) numberOf[`duplicate/${each.kind}`] = each.number;
    which.hidden = !Object.keys(numberOf).length;
    which.querySelector('select').append(...Object.entries(numberOf).map(([why, number]) => h('option', { value: why }, `${droppedAs(why)} (${count(number)})`)));
  };
  which.hidden = true;
  if (data.sources) { offer(data.sources); offerLeftOut(data.left_out); }
  else document.addEventListener('glit-numbers', (event) => { offer(event.detail.sources); offerLeftOut(event.detail.left_out); });
  const tools = h('div', { class: 'tools', role: 'search', 'aria-label': 'Samples' },
    h('label', { class: 'search' }, 'Search', search),
    which,
    choice('Order', 'sort', Object.entries(SORTS).map(([value, [words]]) => [value, words])),
    from,
    choice('Sentences', 'kind', [['', 'all'], ['all', 'all have a region'], ['alone', 'some have none']]),
    h('label', { class: 'short' }, 'Best cosine ≥', h('input', { type: 'number', step: '0.01', onchange: number('from') })),
    h('label', { class: 'short' }, 'and ≤', h('input', { type: 'number', step: '0.01', onchange: number('upTo') })),
    choice('Boxes', 'boxes', [['chosen', 'in pairs'], ['named', 'in pairs, named'], ['all', 'all'], ['none', 'none']]));

  document.addEventListener('keydown', (event) => galleryKey(event, search, cards, () => (more.hidden ? null : load(false))));
  new IntersectionObserver((seen) => {
    if (seen.some((each) => each.isIntersecting) && !more.hidden && shown && !busy) load(false);
  }, { rootMargin: '900px' }).observe(more);
  window.addEventListener('beforeprint', async () => {
    while (!more.hidden && !busy && shown < MOST_PRINTED) await load(false);
    document.querySelectorAll('.card img').forEach((image) => image.setAttribute('loading', 'eager'));
  });
  const open = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    if (!/^[0-9a-f]{16}/.test(id)) return;
    search.value = id;
    change('text', id);
    document.getElementById('samples').scrollIntoView();
  };
  window.addEventListener('hashchange', open);
  load(true).then(open);
  return h('section', { id: 'samples', 'aria-labelledby': 'samples-title' },
    h('h2', { id: 'samples-title' }, 'Samples'),
    h('p', { class: 'lead' }, 'A sentence and its region share a number and a colour. Dotted grey sentences were '
      + 'given no region. The small map shows how similar every sentence is to every region.'),
    tools, tally, cards, more);
}

/** An image that is not in the dataset: where it is, and what was wrong. */
function droppedCard(row) {
  return h('article', { class: 'dropped-card' },
    row.image ? h('img', { src: row.image, alt: '', loading: 'lazy', decoding: 'async' }) : null,
    h('div', {}, h('h3', {}, row.path), h('p', {}, h('b', {}, row.why), row.message ? ` ${row.message}` : '')));
}

function selectionWords({ shown, matching, all, seed, where }) {
  if (shown === undefined) return where ? `, of those for which ${where}` : '';
  if (shown === all) return '';
  const of = where ? `${count(matching)} (of ${count(all)}) for which ${where}` : count(all);
  return shown === matching ? `, all of the ${of}` : `, chosen by chance (seed ${seed}) out of ${of}`;
}

function galleryKey(event, search, cards, more) {
  if (event.target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') { event.preventDefault(); search.focus(); return; }
  const step = { j: 1, k: -1 }[event.key];
  if (!step) return;
  const all = [...cards.querySelectorAll('.card')];
  const at = all.findIndex((each) => each.contains(document.activeElement));
  const next = all[at < 0 ? 0 : at + step];
  if (!next) { if (step > 0) more(); return; }
  next.scrollIntoView({ block: 'center' });
  (next.querySelector('.sentence') || next.querySelector('.box'))?.focus({ preventScroll: true });
}
