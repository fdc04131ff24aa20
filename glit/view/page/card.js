/* A sample: picture with boxes, caption with sentences, and what ties them together. */

const HUES = ['#1d5fd1', '#b4500b', '#147a42', '#b3256e', '#6d3fc4', '#0b7285', '#c02626', '#6b6a00'];

/** Colours of the sentences: those of their regions, which take turns in the caption's order. */
function huesOf(sample) {
  const regionOf = new Map(sample.pairs.filter((pair) => !pair.none).map((pair) => [pair.s, pair.r]));
  const hueOf = new Map();
  return sample.matrix.map((_, s) => {
    if (!regionOf.has(s)) return null;
    const r = regionOf.get(s);
    if (!hueOf.has(r)) hueOf.set(r, HUES[hueOf.size % HUES.length]);
    return hueOf.get(r);
  });
}

function card(sample, { featured = false, heading = 'h3', boxes = 'chosen', query = '', link = true, apart = new Set(), hues = huesOf(sample) } = {}) {
  const pairOf = new Map(sample.pairs.map((pair) => [pair.s, pair]));
  const sentencesOf = new Map();
  for (const pair of [...sample.pairs].sort((a, b) => a.s - b.s)) {
    if (pair.none) continue;
    sentencesOf.set(pair.r, [...(sentencesOf.get(pair.r) || []), pair.s]);
  }
  const boxOf = new Map();
  const spans = new Map();
  const readout = h('p', { class: 'readout' });
  const stage = h('figure', { class: 'stage' });
  const caption = h('p', { class: 'caption', dir: 'auto' });
  const words = h('div', { class: 'words' });
  const maps = sample.maps && sample.image && sample.matrix.length ? mapsOf(sample) : null;
  let pinned = null;

  const light = (sentences, region) => {
    const whole = sentences.length === 1 && pairOf.get(sentences[0])?.none !== false && region === null;
    for (const [r, box] of boxOf) {
      box.classList.toggle('on', r === region);
      box.style.setProperty('--hue', hues[r === region && sentences.length ? sentences[0] : sentencesOf.get(r)[0]]);
    }
    for (const [s, span] of spans) span.classList.toggle('on', sentences.includes(s));
    stage.classList.toggle('lit', region !== null);
    stage.classList.toggle('whole', whole);
    words.classList.toggle('lit', sentences.length > 0);
    readout.classList.toggle('on', sentences.length > 0);
    readout.style.setProperty('--hue', sentences.length ? hues[sentences[0]] || 'var(--soft)' : '');
    readout.textContent = sentences.length ? tell(sample, pairOf, sentences, region) : hint(sample, sentencesOf);
    maps?.show(sentences.length === 1 ? sentences[0] : null);
    if (region !== null && !boxOf.has(region)) showLoose(region);
    if (loose && loose.region !== region) { loose.box.remove(); loose = null; }
  };
  let loose = null;
  const showLoose = (region) => {
    loose?.box.remove();
    loose = { region, box: place(h('div', { class: 'box on' }), sample, region) };
    loose.box.style.setProperty('--hue', '#1b1a17');
    stage.append(loose.box);
  };
  const ofSentence = (s) => light([s], pairOf.has(s) && !pairOf.get(s).none ? pairOf.get(s).r : null);
  const ofRegion = (r) => light(sentencesOf.get(r) || [], r);
  const dark = () => { if (pinned) pinned(); else light([], null); };
  const pin = (again) => {
    const same = pinned !== null && pinned.key === again.key;
    pinned = same ? null : again;
    dark();
  };
  const keyed = (key, action) => Object.assign(action, { key });

  let seen = [];
  const showPhrase = (regions) => {
    for (const box of seen) box.remove();
    seen = regions.map((r) => place(h('div', { class: 'box phrase' }), sample, r));
    stage.append(...seen);
  };
  /** A sentence without its first word, the phrases that a grounder found underlined. */
  const phrased = (s, skip) => sample.phrases[s].flatMap(([words, regions]) => {
    const rest = marked(words.slice(Math.min(skip, words.length)), query);
    skip = Math.max(0, skip - words.length);
    return regions === null ? rest : h('u', {
      class: 'phrase', title: `found in ${regions.map((r) => nameOf(sample, r)).join(', ')}`,
      onmouseenter: () => showPhrase(regions), onmouseleave: () => showPhrase([]),
    }, rest);
  });

  for (const [words, s] of sample.parts) {
    if (s < 0) { caption.append(text(words)); continue; }
    const pair = pairOf.get(s);
    const has = pair && !pair.none;
    const first = words.slice(0, 28).split(' ')[0];  // the number stays with the first word
    const action = keyed(`s${s}`, () => ofSentence(s));
    const span = h('span', {
      class: `sentence${has ? '' : ' alone'}${sample.flags[s].in_window ? '' : ' outside'}`,
      role: 'button', tabindex: '0', 'data-s': s,
      onmouseenter: () => ofSentence(s), onmouseleave: dark,
      onfocus: () => ofSentence(s), onblur: dark, onclick: () => pin(action),
      onkeydown: (event) => sentenceKey(event, span, () => pin(action), () => { pinned = null; light([], null); }),
    }, h('span', { class: 'first' }, apart.has(s) ? h('i', { class: 'apart', title: 'another choice in the other dataset' }, 'Δ') : null, h('b', { 'aria-hidden': 'true' }, String(s + 1)), marked(first, query)), sample.phrases ? phrased(s, first.length) : marked(words.slice(first.length), query),
    h('span', { class: 'hush' }, has ? ` (${nameOf(sample, pair.r)}, similarity ${cosine(pair.sim)})` : ' (no region)'));
    if (hues[s]) span.style.setProperty('--hue', hues[s]);
    spans.set(s, span);
    caption.append(span);
  }

  if (sample.image) {
    stage.style.maxWidth = `${(featured ? 27 : 25) * (sample.w / sample.h)}rem`;
    stage.append(h('img', { src: sample.image, alt: sample.path, width: sample.w, height: sample.h, loading: 'lazy', decoding: 'async', onclick: () => enlarge(sample) }),
      h('button', { class: 'zoom', type: 'button', 'aria-label': `Enlarge ${sample.path}`, onclick: () => enlarge(sample) }, '⤢'));
    const order = sample.regions.map((_, r) => r).sort((a, b) => area(sample, b) - area(sample, a));
    for (const r of order) {
      const of = sentencesOf.get(r);
      if (!of && boxes !== 'all') continue;
      if (boxes === 'none') continue;
      const action = keyed(`r${r}`, () => ofRegion(r));
      const box = of
        ? h('button', {
          class: 'box', type: 'button', 'data-r': r,
          'aria-label': `${nameOf(sample, r)}, of sentence ${of.map((s) => s + 1).join(' and ')}`,
          onmouseenter: () => ofRegion(r), onmouseleave: dark, onfocus: () => ofRegion(r), onblur: dark,
          onclick: () => pin(action),
          onkeydown: (event) => { if (event.key === 'Escape') { pinned = null; light([], null); } },
        }, h('b', { 'aria-hidden': 'true', class: badgeOf(sample, r, boxes === 'named') }, of.map((s) => s + 1).join('·') + (boxes === 'named' ? ` ${named(sample.regions[r])}` : '')))
        : h('div', { class: 'box faint' });
      if (of) { box.style.setProperty('--hue', hues[of[0]]); boxOf.set(r, box); }
      stage.append(place(box, sample, r));
    }
  } else {
    stage.classList.add('gone');
    stage.append('This image cannot be read.');
  }

  const heat = heatmap(sample, hues, stage.querySelector('img'), (s, r) => {
    if (s !== null) light([s], r);
    else if (r !== null) ofRegion(r);
    else dark();
  });
  const title = link ? h('a', { href: `#${sample.id.slice(0, 16)}` }, sample.path) : sample.path;
  const about = [`${sample.w} × ${sample.h}`, counted(sample.matrix.length, 'sentences'),
    counted(sample.regions.length + sample.hidden, 'regions')];
  if (sample.hidden) about.push(`${sample.regions.length} shown`);
  const others = (sample.others ?? []).map(([kind, told]) => h('p', { class: 'other' }, h('b', {}, `${kind}: `), marked(told, query)));
  words.append(h('div', { class: 'top' }, h(heading, {}, title), h('span', {}, about.join(' · '))), caption, ...others, readout);
  if (heat) words.append(heat);
  if (maps) words.append(maps.strip);
  light([], null);
  return h('article', { class: `card${featured ? ' featured' : ''}`, 'data-n': sample.n }, stage, words);
}

/** The picture over the page; a click on it shows it at the size of the original. */
function enlarge(sample) {
  const image = h('img', { src: sample.image, alt: sample.path, width: sample.w, height: sample.h });
  const fit = () => { image.style.width = `min(94vw, ${86 * (sample.w / sample.h)}vh)`; };
  let large = false;
  image.addEventListener('click', () => { large = !large; if (large) image.style.width = `${sample.w}px`; else fit(); });
  const dialog = h('dialog', {
    class: 'enlarged', 'aria-label': sample.path, onclose: () => dialog.remove(),
    onclick: (event) => { if (event.target === dialog) dialog.close(); },
  }, h('p', {}, h('b', {}, sample.path), ` ${sample.w} × ${sample.h} `, h('button', { type: 'button', onclick: () => dialog.close() }, 'Close')), image);
  fit();
  document.body.append(dialog);
  dialog.showModal();
}

/** What the proposer says of a region: its label, or its source, and its score. */
function named(region) {
  return [region.label || (region.source === 'person' ? 'by hand' : region.source), region.score === null ? null : region.score.toFixed(2)].filter(Boolean).join(' ');
}

/** Where the badge of a box stands: outside of a small one, which it would cover. */
function badgeOf(sample, r, isNamed) {
  const [x0, y0, x1, y1] = sample.regions[r].box;
  const side = Math.max(sample.w, sample.h);
  const classes = isNamed ? ['named'] : [];
  if (isNamed || Math.min(x1 - x0, y1 - y0) < 0.15 * side) {
    if (y0 > 0.06 * side) classes.push('above');
    else if (y1 < sample.h - 0.06 * side) classes.push('below');
  }
  if (isNamed && x0 > 0.6 * sample.w) classes.push('leftwards');
  return classes.join(' ');
}

function area(sample, r) {
  const [x0, y0, x1, y1] = sample.regions[r].box;
  return (x1 - x0) * (y1 - y0);
}

function place(box, sample, r) {
  const [x0, y0, x1, y1] = sample.regions[r].box;
  box.style.left = `${(x0 / sample.w) * 100}%`;
  box.style.top = `${(y0 / sample.h) * 100}%`;
  box.style.width = `${((x1 - x0) / sample.w) * 100}%`;
  box.style.height = `${((y1 - y0) / sample.h) * 100}%`;
  const { mask } = sample.regions[r];
  if (mask) box.prepend(svg('svg', { class: 'mask', viewBox: '0 0 48 48', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, svg('path', { d: mask })));
  return box;
}

function nameOf(sample, r) {
  const region = sample.regions[r];
  return `region ${sample.numbers[r] + 1}, ${region.label && region.label !== region.source ? `${region.source} “${region.label}”` : region.source}`;
}

function hint(sample, sentencesOf) {
  const best = sample.pairs.find((pair) => !pair.none);
  if (!best) return 'No sentence of this caption has a region.';
  return `Best pair: sentence ${best.s + 1}, ${nameOf(sample, best.r)}, ${measure()} ${cosine(best.sim)}`
    + `${best.p === null ? '' : `, ${odds(best.p)} probable`}.`;
}

/** What is known of a sentence and a region that are lit together. */
function tell(sample, pairOf, sentences, region) {
  if (sentences.length > 1) {
    return `${upper(nameOf(sample, region))}: sentences ${sentences.map((s) => s + 1).join(', ')}.`;
  }
  const s = sentences[0];
  const pair = pairOf.get(s);
  const whole = sample.whole ? ` Whole image: ${cosine(sample.whole[s])}.` : '';
  const outside = (sample.flags[s].in_window ? '' : ' It leaves the text window.')
    + (pair && pair.t !== null ? ` True of the image: ${odds(pair.t)}.` : '');
  if (region === null) {
    if (!pair) return `Sentence ${s + 1} has no region.${outside}`;
    const likely = pair.p === null ? '' : `, ${odds(pair.p)} probable`;
    return `Sentence ${s + 1} has no region of its own; the best would be ${nameOf(sample, pair.r)} `
      + `(${measure()} ${cosine(pair.sim)}${likely}).${whole}${outside}`;
  }
  const chosen = pair && !pair.none && pair.r === region;
  const seen = sample.regions[region];
  const likely = chosen && pair.p !== null ? ` · ${odds(pair.p)} probable` : '';
  const score = seen.score === null || seen.source === 'quadrant' || seen.source === 'centre' ? '' : ` (score ${seen.score.toFixed(2)})`;
  return `Sentence ${s + 1} ${chosen ? '→' : '×'} ${nameOf(sample, region)}${score} · ${measure()} `
    + `${cosine(chosen ? pair.sim : sample.matrix[s][region])}${likely}.${whole}${outside}`;
}

function upper(words) {
  return words[0].toUpperCase() + words.slice(1);
}

function sentenceKey(event, span, press, let_go) {
  if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); press(); }
  if (event.key === 'Escape') let_go();
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const all = [...span.parentElement.querySelectorAll('.sentence')];
  const next = all[all.indexOf(span) + step];
  if (next) { event.preventDefault(); next.focus(); }
}

/** Text with the searched words marked. */
function marked(words, query) {
  if (!query) return [text(words)];
  const low = words.toLowerCase();
  const parts = [];
  let at = 0;
  for (let found = low.indexOf(query); found >= 0 && low.length === words.length; found = low.indexOf(query, at)) {
    parts.push(text(words.slice(at, found)), h('mark', { class: 'mark' }, words.slice(found, found + query.length)));
    at = found + query.length;
  }
  parts.push(text(words.slice(at)));
  return parts;
}
