/* A training run, and results of evaluations. */

const WAY_WORDS = { image: 'Images by captions', text: 'Captions by images' };
const PLOT = { width: 320, height: 150, left: 52, top: 8, floor: 122 };
const WIDE_PLOT = { width: 560, height: 250, left: 52, top: 8, floor: 222 };

function learning(data) {
  document.title = `${data.name} · glit`;
  const parts = [];
  if (data.run) main.append(runHero(data.run), curvesOf(data.run), checkpointsOf(data.run));
  else main.append(resultsHero(data));
  if (data.run) parts.push(['top', 'The run'], ['curves', 'Curves'], ['checkpoints', 'Checkpoints']);
  if (data.results.length) { main.append(figuresOf(data)); parts.push(['results', 'Results']); }
  for (const found of data.neighbours) main.append(neighboursOf(found, data.neighbours.indexOf(found)));
  if (data.neighbours.length) parts.push(['neighbours-0', 'Neighbours']);
  navigation(parts);
}

function shortName(path) {
  const parts = path.replace(/\/+$/, '').split('/');
  return parts.slice(['best', 'last'].includes(parts[parts.length - 1]) ? -2 : -1).join('/');
}

function runHero(run) {
  const settings = run.settings;
  const loss = run.curves.find((each) => each.name === 'loss');
  const facts = [
    [run.steps, 'steps'], [run.epochs, 'epochs'], [settings.batch_size, 'samples a step'], [run.checkpoints.length, 'checkpoints'],
  ];
  const done = run.steps >= run.total_steps ? '' : ` It has gone ${count(run.steps)} of ${count(run.total_steps)} steps.`;
  return h('section', { class: 'hero', id: 'top' },
    h('div', { class: 'intro' },
      h('p', { class: 'kicker' }, 'A training run'),
      h('h1', {}, run.name),
      h('p', { class: 'lead' }, `${shortName(settings.model)} fine-tuned on ${run.dataset} with the objective ${settings.objective}.${done}`),
      h('dl', { class: 'figures' }, facts.map(([value, name]) => h('div', {}, h('dt', {}, value === 1 ? name.replace(/s$/, '') : name), h('dd', {}, count(value)))))),
    h('div', { class: 'exhibit' }, loss ? lineChart(loss, 'h2', WIDE_PLOT) : h('p', { class: 'lead' }, 'No step has been reported yet.')),
    h('div', { class: 'origin' }, h('h2', {}, 'Settings'), settingsTable(run)));
}

function settingsTable(run) {
  const rows = Object.entries(run.settings).map(([key, value]) => [key, Array.isArray(value) ? value.join(', ') : String(value)]);
  rows.push(...Object.entries(run.packages), ['glit', run.glit]);
  return h('details', {}, h('summary', {}, `${rows.length} keys and versions`),
    h('table', { class: 'table' }, h('tbody', {}, rows.map(([key, value]) => h('tr', {}, h('th', { scope: 'row' }, key), h('td', {}, value))))));
}

function resultsHero(data) {
  const one = data.results[0];
  return h('section', { class: 'hero', id: 'top' },
    h('div', { class: 'intro' },
      h('p', { class: 'kicker' }, 'Results of an evaluation'),
      h('h1', {}, data.name),
      h('p', { class: 'lead' }, `${counted(new Set(data.results.map((each) => each.model)).size, 'models')} measured on ${one.dataset}: `
        + `${counted(one.images, 'images')}, ${counted(one.captions, 'captions')}.`)),
    h('div', { class: 'exhibit' }, data.recalls.length ? recallChart(data.recalls, 'image', 'h2', WIDE_PLOT) : null));
}

/** A number in four digits, a small one in three. */
function digits(value) {
  if (value === 0) return '0';
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(size < 1e-2 ? 3 : 4)));
}

function curvesOf(run) {
  const others = run.curves.filter((each) => each.name !== 'loss');
  return h('section', { id: 'curves', 'aria-labelledby': 'curves-title' },
    h('h2', { id: 'curves-title' }, 'Curves'),
    h('p', { class: 'lead' }, 'By step. The terms add up to the loss with the weights of the settings; of a long run each point is a mean.'),
    h('div', { class: 'charts' }, others.map((each) => lineChart(each))));
}

function lineChart(curve, heading = 'h3', plot = PLOT) {
  const points = curve.points;
  const values = points.map((point) => point[1]);
  const lost = curve.not_finite ? `; ${counted(curve.not_finite, 'values')} not finite` : '';
  const once = values.length === 1 ? `${digits(values[0])}, reported once` : `${digits(values[0])} at first, ${digits(values[values.length - 1])} in the end`;
  const words = points.length ? `${once}${lost}` : `no finite value${lost}`;
  const low = Math.min(...values);
  const high = Math.max(...values);
  const first = points.length ? points[0][0] : 0;
  const last = points.length ? points[points.length - 1][0] : 0;
  const x = (step) => plot.left + (last === first ? 0.5 : (step - first) / (last - first)) * (plot.width - plot.left - 6);
  const y = (value) => plot.floor - (high === low ? 0.5 : (value - low) / (high - low)) * (plot.floor - plot.top);
  const path = points.map(([step, value], at) => `${at ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('');
  return h('div', { class: 'chart' },
    h(heading, {}, curve.title),
    h('p', { class: 'say' }, `${words[0].toUpperCase()}${words.slice(1)}.`),
    points.length ? svg('svg', { viewBox: `0 0 ${plot.width} ${plot.height}`, role: 'img', 'aria-label': `${curve.title} by step: ${words}` },
      frame(plot), axisWords(plot, high === low ? '' : digits(high), high === low ? '' : digits(low), `step ${count(first)}`, `step ${count(last)}`),
      points.length > 1 ? svg('path', { class: 'line', d: path }) : svg('circle', { class: 'dot', cx: x(first), cy: y(values[0]), r: 3 })) : null);
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

function checkpointsOf(run) {
  const rows = run.checkpoints.map((each) => h('tr', {},
    h('th', { scope: 'row' }, each.name), h('td', {}, each.called.join(' and ') || '–'), h('td', {}, count(each.step)),
    h('td', {}, each.loss === null || each.loss === undefined ? '–' : digits(each.loss)), h('td', {}, bytes(each.bytes)), h('td', {}, each.resumes ? 'yes' : 'no')));
  return h('section', { id: 'checkpoints', 'aria-labelledby': 'checkpoints-title' },
    h('h2', { id: 'checkpoints-title' }, 'Checkpoints'),
    h('p', { class: 'lead' }, 'Each is a folder that CLIPModel loads. The loss is the one reported last before it.'),
    rows.length ? h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Table of checkpoints' }, h('table', { class: 'table' },
      h('thead', {}, h('tr', {}, ['Folder', 'Called', 'Step', 'Loss', 'Weights', 'Resumable'].map((words) => h('th', { scope: 'col' }, words)))),
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
    h('ul', { class: 'legend' }, lines.map((each, at) => h('li', { class: `line-${at % 4}` }, shortName(each.model)))),
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
