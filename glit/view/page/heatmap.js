/* The similarities of a sample: a row a sentence, a column a region, darker is more similar. */

const CELL = 13;

function heatmap(sample, hues, choose) {
  const rows = sample.matrix.length;
  const columns = sample.regions.length;
  if (!rows || !columns) return null;
  const wide = Math.max(columns * CELL, 120);
  const canvas = h('canvas', {
    role: 'img',
    'aria-label': `Similarity of ${counted(rows, 'sentences')} and ${counted(columns, 'regions')}; `
      + 'the ringed region of a row is its pair',
  });
  canvas.style.height = `${rows * CELL}px`;
  canvas.style.maxWidth = `${columns * CELL * 2.2}px`;
  const flat = sample.matrix.flat().filter((value) => value !== null);
  const low = Math.min(...flat);
  const high = Math.max(...flat);
  const chosen = new Map(sample.pairs.filter((pair) => !pair.none).map((pair) => [pair.s, pair.r]));
  const draw = (ink = null) => {
    const style = getComputedStyle(canvas);
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    const width = canvas.clientWidth || wide;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(rows * CELL * scale);
    const pen = canvas.getContext('2d');
    pen.scale(scale, scale);
    const cell = width / columns;
    for (let s = 0; s < rows; s += 1) {
      for (let r = 0; r < columns; r += 1) {
        const value = sample.matrix[s][r];
        const heat = value === null || high === low ? 0 : (value - low) / (high - low);
        pen.globalAlpha = 0.05 + 0.9 * heat * heat;
        pen.fillStyle = ink || style.color || '#000';
        pen.fillRect(r * cell, s * CELL, Math.max(cell - 1, 0.6), CELL - 1);
      }
      if (chosen.has(s)) {
        pen.globalAlpha = 1;
        pen.lineWidth = 2;
        pen.strokeStyle = hues[s];
        pen.strokeRect(chosen.get(s) * cell + 1, s * CELL + 1, Math.max(cell - 3, 1), CELL - 3);
      }
    }
  };
  const at = (event) => {
    const place = canvas.getBoundingClientRect();
    const r = Math.floor(((event.clientX - place.left) / place.width) * columns);
    const s = Math.floor(((event.clientY - place.top) / place.height) * rows);
    return s >= 0 && s < rows && r >= 0 && r < columns ? [s, r] : null;
  };
  canvas.addEventListener('mousemove', (event) => { const cell = at(event); if (cell) choose(...cell); });
  canvas.addEventListener('mouseleave', () => choose(null, null));
  new ResizeObserver(() => draw()).observe(canvas);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw());
  document.addEventListener('glit-theme', () => draw());
  window.addEventListener('beforeprint', () => draw('#000')); // paper is white, whatever the screen is
  window.addEventListener('afterprint', () => draw());
  draw(); // those that come up only to be printed are not resized before
  const step = rows > 14 ? 5 : 1;
  const numbers = Array.from({ length: rows }, (_, s) => h('span', {}, s === 0 || (s + 1) % step === 0 ? String(s + 1) : ' '));
  return h('div', { class: 'heat' },
    h('div', { class: 'rows', 'aria-hidden': 'true' }, numbers), canvas,
    h('div', { class: 'below' }, `${counted(columns, 'regions')} →  ${measure()} ${cosine(low)} to ${cosine(high)}`));
}
