/* Faults of a dataset or a file. */

const data = JSON.parse(document.getElementById('data').textContent);
document.title = `${data.title}, faults · glit`;
document.getElementById('theme').remove();

function share(value) {
  const number = 100 * value;
  return `${number >= 10 || !number ? Math.round(number) : Number(number.toPrecision(1))} %`;
}

function row(each) {
  return h('tr', {}, h('td', {}, h('span', { class: each.severity }, each.severity)), h('th', { scope: 'row' }, h('a', { href: `#${each.code}` }, each.code)),
    h('td', {}, each.sentence), h('td', { class: 'whole' }, `${count(each.at_fault)} of ${counted(each.looked_at, each.of)}`), h('td', { class: 'whole' }, share(each.share)));
}

function example(each) {
  return h('figure', {}, each.image ? h('img', { src: each.image, alt: each.name, loading: 'lazy', decoding: 'async' }) : null,
    h('figcaption', {}, each.name, h('small', {}, each.detail)));
}

function part(each) {
  return h('section', { id: each.code, 'aria-labelledby': `${each.code}-title` }, h('h2', { id: `${each.code}-title` }, each.sentence),
    h('p', { class: 'lead' }, `${count(each.at_fault)} of ${counted(each.looked_at, each.of)}, ${share(each.share)}.`),
    h('div', { class: 'faults' }, each.examples.map(example)),
    each.repair ? h('p', {}, 'To repair: ', h('code', {}, each.repair)) : null);
}

const errors = data.findings.filter((each) => each.severity === 'error').length;
const head = (names) => h('thead', {}, h('tr', {}, names.map((name) => h('th', { scope: 'col' }, name))));
document.getElementById('main').append(
  h('section', {}, h('p', { class: 'kicker' }, 'Faults'), h('h1', { class: 'title' }, data.title),
    h('p', { class: 'lead' }, data.findings.length
      ? `${counted(data.images, 'images')}, format ${data.format}: ${counted(errors, 'errors')} and ${counted(data.findings.length - errors, 'warnings')}, worst first.`
      : `${counted(data.images, 'images')}, format ${data.format}: no fault was found.`),
    data.findings.length ? h('div', { class: 'scroll' }, h('table', { class: 'table' }, head(['Severity', 'Kind', 'Fault', 'At fault', 'Share']), h('tbody', {}, data.findings.map(row)))) : null,
    data.estimates.map((each) => h('p', {}, `${each.of}: ${share(each.share)} ${each.claim}, between ${share(each.at_least)} and ${share(each.at_most)} (${each.method}).`)),
    data.licences.length ? h('p', {}, `Licences: ${data.licences.map(([name, number]) => `${name} ${share(number / data.images)}`).join(', ')}.`) : null,
    data.clean.length ? h('p', {}, `Looked for and not found: ${data.clean.join(', ')}.`) : null),
  ...data.findings.map(part),
  ...(data.skipped.length ? [h('section', {}, h('h2', {}, 'Not looked for'), h('ul', { class: 'skipped' }, data.skipped.map(([code, why]) => h('li', {}, h('code', {}, code), ` ${why}`))))] : []));
document.getElementById('foot').append(h('p', {}, `Made by glit ${data.glit}.`));
