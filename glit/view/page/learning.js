/* Training runs, and results of evaluations. */

const WAY_WORDS = { image: 'Images by captions', text: 'Captions by images' };
const PLOT = { width: 320, height: 150, left: 58, top: 8, floor: 122 };
const WIDE_PLOT = { width: 560, height: 250, left: 58, top: 8, floor: 222 };

/** A chart as wide as the page lets it be, so that its words stay readable on a phone. */
function fitting(draw) {
  const narrow = matchMedia('(max-width: 640px)');
  const place = h('div', {});
  const redraw = () => place.replaceChildren(draw(narrow.matches ? PLOT : WIDE_PLOT));
  narrow.addEventListener('change', redraw);
  redraw();
  return place;
}

function learning(data) {
  document.title = `${data.name} · glit`;
  const parts = [];
  const { runs } = data;
  if (runs.length) main.append(runsHero(runs), curvesOf(runs), checkpointsOf(runs));
  else main.append(resultsHero(data));
  if (runs.length) parts.push(['top', runs.length > 1 ? 'The runs' : 'The run'], ['curves', 'Curves'], ['checkpoints', 'Checkpoints']);
  if (data.samples?.length) {
    main.append(h('section', { 'aria-labelledby': 'maps' }, h('h2', { id: 'maps' }, 'Where sentences are found'),
      h('p', { class: 'lead' }, 'Point at a sentence: the brighter a patch, the more similar it is to it. The box is that of its pair.'),
      h('div', { class: 'cards' }, data.samples.map((each) => card(each, { link: false })))));
    parts.push(['maps', 'Maps']);
  }
  if (data.results.length) { main.append(figuresOf(data)); parts.push(['results', 'Results']); }
  for (const found of data.neighbours) main.append(neighboursOf(found, data.neighbours.indexOf(found)));
  if (data.neighbours.length) parts.push(['neighbours-0', 'Neighbours']);
  navigation(parts);
}

function shortName(path) {
  const parts = path.replace(/\/+$/, '').split('/');
  return parts.slice(['best', 'last'].includes(parts[parts.length - 1]) ? -2 : -1).join('/');
}

function runsHero(runs) {
  const [run] = runs;
  const about = ({ settings, dataset, steps, total_steps: total }) => `${shortName(settings.model)} fine-tuned on ${dataset} with the objective ${settings.objective}.`
    + (steps >= total ? '' : ` It has gone ${count(steps)} of ${count(total)} steps.`);
  const facts = runs.length > 1 ? [] : [
    [run.steps, 'steps'], [run.epochs, 'epochs'], [run.settings.batch_size, 'samples a step'], [run.checkpoints.length, 'checkpoints'],
  ];
  const loss = linesOf(runs, 'loss');
  return h('section', { class: 'hero', id: 'top' },
    h('div', { class: 'intro' },
      h('p', { class: 'kicker' }, runs.length > 1 ? `${runs.length} training runs` : 'A training run'),
      h('h1', {}, runs.map((each) => each.name).join(' · ')),
      runs.length > 1 ? runs.map((each) => h('p', { class: 'lead' }, h('b', {}, `${each.name}: `), about(each))) : h('p', { class: 'lead' }, about(run)),
      facts.length ? h('dl', { class: 'figures' }, facts.map(([value, name]) => h('div', {}, h('dt', {}, value === 1 ? name.replace(/s$/, '') : name), h('dd', {}, count(value))))) : null),
    h('div', { class: 'exhibit' }, loss.length ? [fitting((plot) => lineChart(loss, 'h2', plot)), smoother()] : h('p', { class: 'lead' }, 'No step has been reported yet.')),
    h('div', { class: 'origin' }, h('h2', {}, 'Settings'), settingsTable(runs)));
}

/** A row for every setting and version; those that differ come first. */
function settingsTable(runs) {
  const tables = runs.map((run) => new Map(Object.entries({ ...run.settings, ...run.packages, glit: run.glit })
    .map(([key, value]) => [key, Array.isArray(value) ? value.join(', ') : String(value)])));
  const rows = [...new Set(tables.flatMap((table) => [...table.keys()]))].map((key) => [key, ...tables.map((table) => table.get(key) ?? '–')]);
  const alike = ([, first, ...others]) => others.every((other) => other === first);
  rows.sort((a, b) => alike(a) - alike(b));
  const several = runs.length > 1;
  return h('details', { open: several }, h('summary', {}, `${rows.length} keys and versions`),
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table of settings' }, h('table', { class: 'table' },
      several ? h('thead', {}, h('tr', {}, h('td', {}), runs.map((run) => h('th', { scope: 'col' }, run.name)))) : null,
      h('tbody', {}, rows.map((row) => h('tr', { class: several && alike(row) ? 'equal' : null }, h('th', { scope: 'row' }, row[0]), row.slice(1).map((value) => h('td', {}, value))))))));
}

function resultsHero(data) {
  const one = data.results[0];
  return h('section', { class: 'hero', id: 'top' },
    h('div', { class: 'intro' },
      h('p', { class: 'kicker' }, 'Results of an evaluation'),
      h('h1', {}, data.name),
      h('p', { class: 'lead' }, `${counted(new Set(data.results.map((each) => each.model)).size, 'models')} measured on ${one.dataset}: `
        + `${counted(one.images, 'images')}, ${counted(one.captions, 'captions')}.`)),
    h('div', { class: 'exhibit' }, data.recalls.length ? fitting((plot) => recallChart(data.recalls, 'image', 'h2', plot)) : null));
}

/** A number in four digits, a small one in three. */
function digits(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(size < 1e-2 ? 3 : 4)));
}

/** The curves of a name, with the run of each. */
function linesOf(runs, name) {
  return runs.flatMap((run, at) => run.curves.filter((each) => each.name === name)
    .map((each) => ({ ...each, at, run: runs.length > 1 ? run.name : '' })));
}

function curvesOf(runs) {
  const names = [...new Set(runs.flatMap((run) => run.curves.map((each) => each.name)))].filter((name) => name !== 'loss');
  return h('section', { id: 'curves', 'aria-labelledby': 'curves-title' },
    h('h2', { id: 'curves-title' }, 'Curves'),
    h('p', { class: 'lead' }, 'By step. The terms add up to the loss with the weights of the settings; of a long run each point is a mean. '
      + 'Point at a curve, or go along it with the arrow keys.'),
    h('div', { class: 'charts' }, names.map((name) => lineChart(linesOf(runs, name)))));
}

let smoothing = 0;

/** One control for all curves. */
function smoother() {
  const said = h('output', {}, 'off');
  return h('label', { class: 'smoother' }, 'Smoothing', h('input', {
    type: 'range', min: 0, max: 0.98, step: 0.02, value: 0,
    oninput: (event) => {
      smoothing = Number(event.target.value);
      said.textContent = smoothing ? smoothing.toFixed(2) : 'off';
      document.dispatchEvent(new Event('glit-smoothing'));
    },
  }), said);
}

/** The moving average that TensorBoard draws: the weight of what came before is `smoothing`. */
function smoothed(points) {
  let sum = 0;
  let weight = 0;
  return points.map(([step, value]) => {
    sum = smoothing * sum + (1 - smoothing) * value;
    weight = smoothing * weight + (1 - smoothing);
    return [step, sum / weight];
  });
}

function lineChart(lines, heading = 'h3', plot = PLOT) {
  const drawn = lines.filter((line) => line.points.length);
  const values = drawn.flatMap((line) => line.points.map((point) => point[1]));
  const steps = [...new Set(drawn.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
  const words = lines.map((line) => (line.run ? `${line.run}: ` : '') + curveWords(line)).join('; ');
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [first, last] = [steps[0], steps[steps.length - 1]];
  const x = (step) => plot.left + (last === first ? 0.5 : (step - first) / (last - first)) * (plot.width - plot.left - 6);
  const y = (value) => plot.floor - (high === low ? 0.5 : (value - low) / (high - low)) * (plot.floor - plot.top);
  const curve = (points, kind) => (points.length > 1
    ? svg('path', { class: kind, d: points.map(([step, value], n) => `${n ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('') })
    : svg('circle', { class: 'dot', cx: x(points[0][0]), cy: y(points[0][1]), r: 3 }));
  const box = h('div', { class: 'chart' }, h(heading, {}, lines[0].title), h('p', { class: 'say' }, `${lines[0].run ? words : upper(words)}.`), legend(drawn.filter((line) => line.run).map((line) => [line.at, line.run])));
  if (!steps.length) return box;
  const curves = svg('g', {});
  const redraw = () => curves.replaceChildren(...drawn.map((line) => svg('g', { class: `line-${line.at}` },
    smoothing ? [curve(line.points, 'line raw'), curve(smoothed(line.points), 'line')] : curve(line.points, 'line'))));
  const plane = svg('svg', { viewBox: `0 0 ${plot.width} ${plot.height}`, 'aria-label': `${lines[0].title} by step: ${words}` },
    frame(plot), axisWords(plot, high === low ? '' : digits(high), high === low ? '' : digits(low), `step ${count(first)}`, `step ${count(last)}`), curves);
  redraw();
  document.addEventListener('glit-smoothing', redraw);
  box.append(h('div', { class: 'plane' }, plane, tips(plane, drawn, steps, x, y, plot)));
  return box;
}

function curveWords({ points, not_finite: lost }) {
  const bad = lost ? `, ${counted(lost, 'values')} not finite` : '';
  if (!points.length) return `no finite value${bad}`;
  const [from, upTo] = [points[0][1], points[points.length - 1][1]].map(digits);
  return (points.length === 1 ? `${from}, reported once` : `${from} at first, ${upTo} in the end`) + bad;
}

/** The values at a step, shown under the mouse and by the arrow keys. */
function tips(plane, drawn, steps, x, y, plot) {
  const tip = h('div', { class: 'tip', hidden: true, 'aria-hidden': 'true' });
  const mark = svg('g', {});
  let at = steps.length - 1;
  plane.append(mark);
  const tell = () => {
    const step = steps[at];
    const found = drawn.map((line) => {
      const n = line.points.findLastIndex((point) => point[0] <= step);
      const over = n === line.points.length - 1 && line.points[n][0] < step;
      return { line, value: n < 0 || over ? null : line.points[n][1], mean: n < 0 || over ? null : smoothed(line.points)[n][1] };
    });
    const said = found.map(({ line, value, mean }) => [line.run, value === null ? '–' : digits(value), value !== null && smoothing ? `(smoothed ${digits(mean)})` : ''].filter(Boolean).join(' '));
    Object.entries({ valuemin: steps[0], valuemax: steps[steps.length - 1], valuenow: step, valuetext: `step ${step}: ${said.join(', ')}` })
      .forEach(([name, value]) => plane.setAttribute(`aria-${name}`, value));
    tip.replaceChildren(h('b', {}, `step ${count(step)}`), ...said.map((words, n) => h('span', { class: `line-${drawn[n].at}` }, words)));
    mark.replaceChildren(svg('line', { class: 'at', x1: x(step), x2: x(step), y1: plot.top, y2: plot.floor }),
      ...found.filter(({ value }) => value !== null).map(({ line, value, mean }) => svg('g', { class: `line-${line.at}` },
        svg('circle', { class: 'dot', cx: x(step), cy: y(smoothing ? mean : value), r: 3.5 }))));
    const place = new DOMPoint(x(step), 0).matrixTransform(plane.getScreenCTM());
    const room = plane.getBoundingClientRect();
    const right = place.x - room.left > room.width / 2;
    tip.style[right ? 'right' : 'left'] = `${right ? room.right - place.x + 8 : place.x - room.left + 8}px`;
    tip.style[right ? 'left' : 'right'] = 'auto';
  };
  const show = (on) => { tip.hidden = !on; mark.style.display = on ? '' : 'none'; };
  const point = (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(plane.getScreenCTM().inverse());
    const apart = steps.map((step) => Math.abs(x(step) - place.x));
    at = apart.indexOf(Math.min(...apart));
    tell();
    show(true);
  };
  const key = (event) => {
    const to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, Home: 0, End: steps.length - 1, PageUp: at + 10, PageDown: at - 10 }[event.key];
    if (event.key === 'Escape') show(false);
    if (to === undefined) return;
    event.preventDefault();
    at = Math.max(0, Math.min(steps.length - 1, to));
    tell();
    show(true);
  };
  const events = { pointermove: point, pointerdown: point, pointerleave: () => show(document.activeElement === plane), focus: () => { tell(); show(true); }, blur: () => show(false), keydown: key };
  for (const [name, action] of Object.entries(events)) plane.addEventListener(name, action);
  plane.setAttribute('role', 'slider');
  plane.setAttribute('tabindex', '0');
  plane.setAttribute('aria-valuenow', steps[at]);
  plane.setAttribute('aria-valuemin', steps[0]);
  plane.setAttribute('aria-valuemax', steps[at]);
  show(false);
  return tip;
}

function legend(names) {
  return names.length ? h('ul', { class: 'legend' }, names.map(([at, words]) => h('li', { class: `line-${at % 4}` }, words))) : null;
}

function frame(plot) {
  return svg('g', {},
    svg('line', { class: 'axis', x1: plot.left, x2: plot.width - 6, y1: plot.floor + 0.5, y2: plot.floor + 0.5 }),
    svg('line', { class: 'axis', x1: plot.left, x2: plot.width - 6, y1: plot.top + 0.5, y2: plot.top + 0.5 }));
}

function axisWords(plot, top, bottom, from, upTo) {
  return svg('g', {},
    svg('text', { x: plot.left - 6, y: plot.top + 4, 'text-anchor': 'end' }, top),
    svg('text', { x: plot.left - 6, y: plot.floor + 2, 'text-anchor': 'end' }, bottom),
    svg('text', { x: plot.left, y: plot.floor + 18 }, from),
    svg('text', { x: plot.width - 6, y: plot.floor + 18, 'text-anchor': 'end' }, upTo === from ? '' : upTo));
}

function checkpointsOf(runs) {
  const several = runs.length > 1;
  const rows = runs.flatMap((run) => run.checkpoints.map((each) => [run, each])).map(([run, each]) => h('tr', {},
    several ? h('td', {}, run.name) : null,
    h('th', { scope: 'row' }, each.name), h('td', {}, each.called.join(' and ') || '–'), h('td', {}, count(each.step)),
    h('td', {}, each.loss === null || each.loss === undefined ? '–' : digits(each.loss)), h('td', {}, bytes(each.bytes)), h('td', {}, each.resumes ? 'yes' : 'no')));
  return h('section', { id: 'checkpoints', 'aria-labelledby': 'checkpoints-title' },
    h('h2', { id: 'checkpoints-title' }, 'Checkpoints'),
    h('p', { class: 'lead' }, 'Each is a folder that CLIPModel loads. The loss is the one reported last before it.'),
    rows.length ? h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table of checkpoints' }, h('table', { class: 'table' },
      h('thead', {}, h('tr', {}, [...(several ? ['Run'] : []), 'Folder', 'Called', 'Step', 'Loss', 'Weights', 'Resumable'].map((words) => h('th', { scope: 'col' }, words)))),
      h('tbody', {}, rows))) : h('p', { class: 'nothing' }, 'None has been written yet.'));
}

function figuresOf(data) {
  const curves = ['image', 'text'].filter((way) => data.recalls.some((each) => each.ways[way])).map((way) => recallChart(data.recalls, way));
  return h('section', { id: 'results', 'aria-labelledby': 'results-title' },
    h('h2', { id: 'results-title' }, 'Results'),
    h('p', { class: 'lead' }, 'Shares in per cent; R@K is the share of queries whose right item is among the first K.'),
    h('div', { class: 'charts' }, curves),
    [...new Set(data.results.map((each) => `${each.task}\n${each.dataset}`))].map((key) => resultTable(data.results.filter((each) => `${each.task}\n${each.dataset}` === key))));
}

function metricWords(name) {
  return name.replace('image_retrieval_', 'T2I ').replace('text_retrieval_', 'I2T ').replace('recall@', 'R@').replace('map@', 'mAP@').replaceAll('_', ' ');
}

function resultTable(results) {
  const names = [...new Set(results.flatMap((each) => Object.keys(each.metrics)))];
  const show = (name, value) => {
    if (value === undefined) return '–';
    return /(recall|map|localisation|chance)@|^drop$/.test(name) ? (100 * value).toFixed(2) : String(Number(value.toFixed(4)));
  };
  const words = `${results[0].task} on ${results[0].dataset}`;
  return h('div', { class: 'scroll results', tabindex: 0, role: 'region', 'aria-label': words },
    h('table', { class: 'table' },
      h('caption', {}, `${words}: ${counted(results[0].images, 'images')}, ${counted(results[0].captions, 'captions')}`),
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Figure'), results.map((each) => h('th', { scope: 'col', title: each.model }, shortName(each.model), each.checkpoint ? ` (${each.checkpoint})` : '')))),
      h('tbody', {}, names.map((name) => h('tr', {}, h('th', { scope: 'row' }, metricWords(name)), results.map((each) => h('td', {}, show(name, each.metrics[name]))))))));
}

function recallChart(recalls, way, heading = 'h3', plot = PLOT) {
  const lines = recalls.filter((each) => each.ways[way]);
  const ks = [...new Set(lines.flatMap((each) => each.ways[way].map((point) => point[0])))].sort((a, b) => a - b);
  const low = Math.max(0, Math.floor(Math.min(...lines.flatMap((each) => each.ways[way].map((point) => point[1]))) * 10 - 0.001) / 10);
  const x = (k) => plot.left + 8 + (ks.length > 1 ? ks.indexOf(k) / (ks.length - 1) : 0.5) * (plot.width - plot.left - 22);
  const y = (value) => plot.floor - (low === 1 ? 1 : (value - low) / (1 - low)) * (plot.floor - plot.top);
  const words = lines.map((each) => `${shortName(each.model)} ${(100 * each.ways[way][0][1]).toFixed(1)} at ${each.ways[way][0][0]}`).join(', ');
  return h('div', { class: 'chart' },
    h(heading, {}, `Recall: ${WAY_WORDS[way].toLowerCase()}`),
    legend(lines.map((each, at) => [at, shortName(each.model)])),
    svg('svg', { viewBox: `0 0 ${plot.width} ${plot.height}`, role: 'img', 'aria-label': `Recall by K: ${words}` },
      frame(plot), axisWords(plot, '100 %', percent(low), '', ''),
      ks.map((k) => svg('text', { x: x(k), y: plot.floor + 18, 'text-anchor': 'middle' }, String(k))),
      lines.map((each, at) => svg('g', { class: `line-${at % 4}` },
        svg('path', { class: 'line', d: each.ways[way].map(([k, value], n) => `${n ? 'L' : 'M'}${x(k).toFixed(1)} ${y(value).toFixed(1)}`).join('') }),
        each.ways[way].map(([k, value]) => svg('circle', { class: 'dot', cx: x(k), cy: y(value), r: 3 }, svg('title', {}, `${shortName(each.model)}, K = ${k}: ${(100 * value).toFixed(2)} %`)))))));
}

function neighboursOf(found, number) {
  const id = `neighbours-${number}`;
  const blocks = Object.entries(found.ways).flatMap(([way, kinds]) => ['wrong', 'right'].filter((kind) => kinds[kind].length).map((kind) => {
    const by = way.startsWith('image') ? 'image' : 'text';
    const title = `${WAY_WORDS[by]}: ${kind === 'right' ? 'the right one comes first' : 'furthest from right'}`;
    return h('div', { class: 'neighbours' }, h('h3', {}, title), h('ul', { class: 'queries' }, kinds[kind].map((each) => query(each))));
  }));
  return h('section', { id, 'aria-labelledby': `${id}-title` },
    h('h2', { id: `${id}-title` }, `What ${shortName(found.model)} finds`),
    h('p', { class: 'lead' }, `On ${found.dataset}: a query, what it should find and at which place that is, and the first three that it finds.`),
    blocks);
}

function query(each) {
  const place = each.rank === 0 ? 'first' : `at place ${count(each.rank + 1)}`;
  return h('li', { class: 'query' },
    h('div', { class: 'asked' }, thing(each.query)),
    h('div', { class: 'found' },
      each.rank === 0 ? null : h('figure', { class: 'wanted' }, thing(each.right), h('figcaption', {}, `wanted; found ${place}`)),
      each.nearest.map((item, at) => h('figure', { class: item.right ? 'good' : null }, thing(item),
        h('figcaption', {}, h('b', {}, item.right ? '✓ ' : ''), `${at + 1} · ${cosine(item.score)}`)))));
}

function thing(item) {
  if (item.image) return h('img', { src: item.image, alt: item.name, loading: 'lazy' });
  return h('p', { class: 'words', title: item.text }, item.text);
}
