/* Maps of a sentence over its image, a picture for every model: the more similar, the brighter. */

/** Returns the pictures, and a function that shows a sentence's maps and the box of its region. */
function mapsOf(sample) {
  const pairOf = new Map(sample.pairs.filter((pair) => !pair.none).map((pair) => [pair.s, pair.r]));
  const figures = sample.maps.map((each) => {
    const canvas = h('canvas', { width: each.grid, height: each.grid, role: 'img' });
    const frame = h('div', { class: 'under' }, h('img', { src: sample.image, alt: '', width: sample.w, height: sample.h, loading: 'lazy', decoding: 'async' }), canvas);
    const said = h('figcaption', {});
    return { each, canvas, frame, said, figure: h('figure', { class: 'map' }, frame, said), box: null };
  });
  const first = pairOf.size ? Math.min(...pairOf.keys()) : 0;
  const show = (chosen) => {
    const s = chosen ?? first;
    for (const part of figures) {
      draw(part.canvas, part.each, s);
      part.canvas.setAttribute('aria-label', `Where sentence ${s + 1} is, by ${part.each.model}`);
      part.said.textContent = `${part.each.model} · sentence ${s + 1}, cosine ${cosine(part.each.low[s])} to ${cosine(part.each.high[s])}`;
      part.box?.remove();
      part.box = pairOf.has(s) ? place(h('div', { class: 'box plain' }), sample, pairOf.get(s)) : null;
      if (part.box) part.frame.append(part.box);
    }
  };
  show(null);
  return { strip: h('div', { class: 'maps' }, figures.map((part) => part.figure)), show };
}

function draw(canvas, { grid, maps }, s) {
  const values = atob(maps[s]);
  const pen = canvas.getContext('2d');
  const pixels = pen.createImageData(grid, grid);
  for (let i = 0; i < grid * grid; i += 1) {
    const share = values.charCodeAt(i) / 255;
    pixels.data.set([255, Math.round(70 + 160 * share), 30, Math.round(225 * share * share)], 4 * i);
  }
  pen.putImageData(pixels, 0, 0);
}
