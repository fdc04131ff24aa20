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
  return sample.matrix.length - sample.pairs.filter((pair) => !pair.none).length;
}

function captionOf(sample) {
  return sample.parts.map(([words]) => words).join('');
}

/** Lower case as DuckDB has it: one letter for each, whatever follows. */
function lower(words) {
  return [...words].map((letter) => [...letter.toLowerCase()][0]).join('');
}

/** All samples are in the page, and the first drops of each reason. */
function inPage(samples, dropped) {
  const low = samples.map((sample) => lower(`${captionOf(sample)}\n${sample.path}`));
  const inPairs = (sample, key, value) => value === '' || sample.pairs.some((pair) => !pair.none && sample.regions[pair.r][key] === value);
  return async (asked, from, ids) => {
    if (asked.why) {
      const rows = (Object.hasOwn(dropped, asked.why) ? dropped[asked.why] : []).filter((row) => `${row.path}\n${row.message}\n${row.id}`.toLowerCase().includes(asked.text));
      return { total: rows.length, samples: [], dropped: rows.slice(from, from + PAGE) };
    }
    const marked = new Set(ids);
    const fits = samples.filter((sample, index) => {
      const { best } = sample;
      return (low[index].includes(asked.text) || sample.id.startsWith(asked.text))
        && inPairs(sample, 'source', asked.source) && inPairs(sample, 'label', asked.label)
        && (asked.from === null || (best !== null && best >= asked.from)) && (asked.upTo === null || (best !== null && best <= asked.upTo))
        && (asked.tag === '' || marked.has(sample.id))
        && (asked.kind === '' || (asked.kind === 'alone') === (aloneOf(sample) > 0));
    });
    const key = SORTS[asked.sort][1];
    const sorted = fits.map((sample) => [key(sample), sample]).sort((a, b) => a[0] - b[0]);
    return { total: fits.length, samples: sorted.slice(from, from + PAGE).map(([, sample]) => sample) };
  };
}

const ID_CHARACTERS = 16; // by which a server is asked for samples

/** All samples are with the server. */
async function withServer(asked, from, ids, tell) {
  if (asked.like !== null) return embedded(`similar/${asked.like}`, tell);
  const words = new URLSearchParams({ first: from });
  if (asked.why) {
    words.set('why', asked.why);
    words.set('text', asked.text);
    const rows = await fetch(`dropped?${words}`);
    if (!rows.ok) throw new Error(await rows.text());
    return rows.json();
  }
  const names = { text: 'text', sort: 'sort', source: 'source', label: 'label', from: 'at_least', upTo: 'at_most', kind: 'kind' };
  for (const [key, name] of Object.entries(names)) {
    if (asked[key] !== '' && asked[key] !== null) words.set(name, asked[key]);
  }
  if (asked.tag) words.set('ids', ids.map((id) => id.slice(0, ID_CHARACTERS)).join(',') || 'none');
  const answer = await fetch(`samples?${words}`);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

/** The reason of a drop; a duplicate is no drop. */
function droppedAs(why) {
  return why.startsWith('duplicate/') ? why : `dropped: ${why}`;
}

const EVERYTHING = { text: '', sort: 'order', source: '', label: '', from: null, upTo: null, kind: '', tag: '', like: null, why: '', boxes: 'chosen' };

const MOST_LABELS = 20;

/** What an address asks for: a sample, a view, or null for a part of the page. */
function askedBy(hash) {
  const words = hash.slice(1);
  if (/^[0-9a-f]{16,}$/.test(words)) return { ...EVERYTHING, text: words };
  if (words && !words.includes('=')) return null;
  const asked = { ...EVERYTHING };
  for (const [key, value] of new URLSearchParams(words)) {
    if (!Object.hasOwn(EVERYTHING, key)) continue;
    if (EVERYTHING[key] !== null) asked[key] = value;
    else if (Number.isFinite(parseFloat(value))) asked[key] = parseFloat(value);
  }
  return asked;
}

function addressOf(asked) {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(asked)) if (value !== EVERYTHING[key]) words.set(key, value);
  return words.size ? `#${words}` : '';
}

function gallery(data, ask, onFirst = null) {
  const asked = { ...EVERYTHING, ...askedBy(location.hash) };
  const cards = h('div', { class: 'cards' });
  const tally = h('p', { class: 'tally', role: 'status' });
  const more = h('button', { class: 'more', type: 'button', onclick: () => load(false) }, 'Show more');
  const controls = {};
  const where = whereOf(data);
  const shelf = shelfOf(data, { choose: (tag) => change('tag', tag), address: () => addressOf(asked) });
  controls.tag = shelf.control;
  let numbers = null;
  let shown = 0;
  let turn = 0;
  let busy = false;
  let last = '';

  const load = async (anew) => {
    const mine = anew ? ++turn : turn;
    const from = anew ? 0 : shown;
    busy = true;
    let found;
    try {
      found = await ask({ ...asked }, from, shelf.idsOf(asked.tag), (words) => { if (mine === turn) tally.textContent = words; });
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
    cards.append(...samples.map((sample) => shelf.dress(card(sample, { boxes: asked.boxes, query: asked.text }), sample)));
    shown = from + samples.length + dropped.length;
    if (!total) cards.append(h('p', { class: 'nothing' }, 'No sample is like that.'));
    more.hidden = shown >= total;
    where.tell(asked.like === null ? asked : EVERYTHING, shelf.idsOf(asked.tag));
    tools.classList.toggle('dropped-only', Boolean(asked.why));
    if (asked.why) tally.textContent = `${count(total)} of ${counted(numberOf[asked.why] ?? 0, 'images')} ${droppedAs(asked.why)}`;
    else if (asked.like !== null) tally.replaceChildren(`The ${count(total)} samples nearest to ${samples[0].path}, by the matcher's cosine of the images. `, h('a', { href: '#' }, 'Back to all'));
    else tally.textContent = `${count(total)} of ${counted(data.selection.shown ?? data.selection.all, 'samples')}${selectionWords(data.selection)}`;
    if (anew && onFirst && samples.length) { onFirst(samples); onFirst = null; }
  };
  /** The controls say what is asked for; what they do not offer is not. */
  const settle = () => {
    if (!data.embeddings) asked.like = null;
    for (const [key, control] of Object.entries(controls)) {
      control.value = asked[key] ?? '';
      if (control.matches('select') && control.value !== asked[key]) {
        if (numbers || (key !== 'source' && key !== 'why')) asked[key] = EVERYTHING[key];
        control.value = asked[key];
      }
    }
  };
  /** Typing on is one step back; every other change is one of its own. */
  const change = (key, value) => {
    asked[key] = value;
    const address = addressOf(asked) || location.href.split('#')[0];
    if (key === 'text' && last === 'text') history.replaceState(null, '', address);
    else history.pushState(null, '', address);
    last = key;
    load(true);
  };
  const number = (key) => (event) => {
    const value = parseFloat(event.target.value);
    change(key, Number.isFinite(value) ? value : null);
  };
  const choice = (label, key, options) => h('label', {}, label, controls[key] = h('select', { onchange: (event) => change(key, event.target.value) },
    options.map(([value, words]) => h('option', { value }, words))));
  const valueOf = (label, key) => h('label', { class: 'short' }, label, controls[key] = h('input', { type: 'number', step: '0.01', onchange: number(key) }));
  let wait = 0;
  const search = controls.text = h('input', {
    type: 'search', placeholder: 'words, a file name',
    oninput: (event) => { clearTimeout(wait); wait = setTimeout(() => change('text', lower(event.target.value.trim())), data.sources ? 0 : 250); },
  });
  const from = choice('Regions from', 'source', [['', 'anywhere']]);
  const label = labels((value) => change('label', value));
  controls.label = label.querySelector('input');
  const which = choice('Show', 'why', [['', 'the dataset']]);
  const numberOf = {};
  const offer = (all) => {
    numbers = all;
    from.querySelector('select').append(...all.sources.filter((each) => each.pairs)
      .map((each) => h('option', { value: each.source }, `${each.source} (${count(each.pairs)})`)));
    label.offer(all.labels);
    for (const each of all.left_out.drops) numberOf[`${each.stage}/${each.reason}`] = each.number;
    for (const each of all.left_out.duplicates) numberOf[`duplicate/${each.kind}`] = each.number;
    which.hidden = !Object.keys(numberOf).length;
    which.querySelector('select').append(...Object.entries(numberOf).map(([why, each]) => h('option', { value: why }, `${droppedAs(why)} (${count(each)})`)));
  };
  which.hidden = true;
  const tools = h('div', { class: 'tools', role: 'search', 'aria-label': 'Samples' },
    h('label', { class: 'search' }, 'Search', search),
    which,
    choice('Order', 'sort', Object.entries(SORTS).map(([value, [words]]) => [value, words])),
    from, label,
    choice('Sentences', 'kind', [['', 'all'], ['all', 'all have a region'], ['alone', 'some have none']]),
    valueOf(`Best ${measure()} ≥`, 'from'), valueOf('and ≤', 'upTo'),
    choice('Boxes', 'boxes', [['chosen', 'in pairs'], ['named', 'in pairs, named'], ['all', 'all'], ['none', 'none']]));
  if (data.sources) offer(data);
  else {
    document.addEventListener('glit-numbers', (event) => {
      const before = addressOf(asked);
      offer(event.detail);
      settle();
      if (addressOf(asked) !== before || asked.why) load(true);
    });
  }
  settle();

  let latest = null; // the card that the mouse or the focus came to last
  cards.addEventListener('focusin', (event) => { latest = event.target.closest('.card'); });
  cards.addEventListener('mousemove', (event) => { // not when cards scroll under a mouse at rest
    if (event.movementX || event.movementY) latest = event.target.closest('.card');
  });
  document.addEventListener('keydown', (event) => galleryKey(event, search, cards, () => (more.hidden ? null : load(false)),
    () => latest?.isConnected && latest.querySelector('.tag').click()));
  new IntersectionObserver((seen) => {
    if (seen.some((each) => each.isIntersecting) && !more.hidden && shown && !busy) load(false);
  }, { rootMargin: '900px' }).observe(more);
  window.addEventListener('beforeprint', async () => {
    while (!more.hidden && !busy && shown < MOST_PRINTED) await load(false);
    document.querySelectorAll('.card img').forEach((image) => image.setAttribute('loading', 'eager'));
  });
  const toSamples = () => { if (askedBy(location.hash) && location.hash) document.getElementById('samples').scrollIntoView(); };
  window.addEventListener('hashchange', () => {
    const wanted = askedBy(location.hash);
    if (!wanted) { // a part of the page; the address keeps the view
      if (addressOf(asked)) history.replaceState(null, '', addressOf(asked));
      return;
    }
    last = '';
    const before = addressOf(asked);
    Object.assign(asked, wanted);
    settle();
    if (addressOf(asked) === before) return;
    load(true).then(() => { if (!location.hash.includes('=')) toSamples(); });
  });
  load(true).then(toSamples);
  return h('section', { id: 'samples', 'aria-labelledby': 'samples-title' },
    h('h2', { id: 'samples-title' }, 'Samples'),
    h('p', { class: 'lead' }, 'The number on a box is that of its sentence, and both have one colour. Dotted grey sentences were '
      + 'given no region. The small matrix shows how similar every sentence is to every region, which is cut out above its column.'),
    tools, shelf, tally, where, cards, more);
}

/** A field for a region's label that offers the most frequent ones like what is typed. */
function labels(choose) {
  const list = h('datalist', { id: 'labels' });
  const field = h('label', { hidden: true }, 'Label', h('input', {
    list: 'labels', type: 'search', placeholder: 'any', oninput: () => suggest(), onchange: (event) => choose(event.target.value.trim()),
  }), list);
  let all = [];
  const suggest = () => {
    const typed = lower(field.querySelector('input').value.trim());
    const like = all.filter((each) => lower(each.label).includes(typed)).slice(0, MOST_LABELS);
    list.replaceChildren(...like.map((each) => h('option', { value: each.label, label: `${each.label} (${count(each.pairs)})` })));
  };
  field.offer = (found) => { all = found; field.hidden = !found.length; suggest(); };
  return field;
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

function galleryKey(event, search, cards, more, tag = () => null) {
  if (event.target.matches('input, select, textarea') || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/') { event.preventDefault(); search.focus(); return; }
  if (event.key === 't') tag();
  const step = { j: 1, k: -1 }[event.key];
  if (!step) return;
  const all = [...cards.querySelectorAll('.card')];
  const at = all.findIndex((each) => each.contains(document.activeElement));
  const next = all[at < 0 ? 0 : at + step];
  if (!next) { if (step > 0) more(); return; }
  next.scrollIntoView({ block: 'center' });
  (next.querySelector('.sentence') || next.querySelector('.box'))?.focus({ preventScroll: true });
}
