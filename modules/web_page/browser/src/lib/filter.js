/**
 * The filter language of tables: terms that all must match, separated by spaces.
 *
 *     env=prod  env=prod,staging  state!=live  name~api  name!~api  nodes>3  nodes<=2  text  -text  "two words"
 *
 * `=` compares the whole value, `~` a part of it, both without regard to case.  A term without an operator matches a
 * part of any column.  A key is a column or a label.
 */

/**
 * @typedef {"=" | "!=" | "~" | "!~" | ">" | ">=" | "<" | "<=" | "text" | "-text"} Operator
 * @typedef {{key: string, operator: Operator, values: string[], source: string}} Term
 *
 * @typedef {object} FilterColumn
 * @property {string} id
 * @property {(row: any) => string} text
 * @property {(row: any) => string | number | null | undefined} [value]
 * @property {boolean} [noFilter]
 */

const TERM = /(?:"[^"]*"?|[^\s"])+/g;
const PARTS = /^([A-Za-z0-9_./-]+)(!=|!~|>=|<=|=|~|>|<)([\s\S]*)$/;

/**
 * Return the terms of a filter.
 *
 * @param {string} text
 * @returns {Term[]}
 */
export function parseFilter(text) {
  return (text.match(TERM) ?? []).map(parseTerm).filter((one) => one.values.some(Boolean));
}

/**
 * @param {string} source
 * @returns {Term}
 */
function parseTerm(source) {
  const found = PARTS.exec(source);
  if (found) {
    const [, key, operator, rest] = found;
    const values = rest.match(/"[^"]*"?|[^,"]+/g) ?? [];
    return { key, operator: /** @type {Operator} */ (operator), values: values.map(bare), source };
  }
  const isNegative = source.length > 1 && source.startsWith("-");
  const word = bare(isNegative ? source.slice(1) : source);
  return { key: "", operator: isNegative ? "-text" : "text", values: [word], source };
}

/**
 * @param {any} row
 * @param {string} key
 * @returns {string}
 */
function labelOf(row, key) {
  return row.labels && Object.hasOwn(row.labels, key) ? String(row.labels[key]) : "";
}

/** @param {string} text */
function bare(text) {
  return text.replaceAll("\"", "").toLowerCase();
}

/**
 * Return a value as the filter language needs it.
 *
 * @param {string} value
 */
export function quoted(value) {
  return /[\s",]/.test(value) ? `"${value.replaceAll("\"", "")}"` : value;
}

/**
 * Return a function that tells whether a row matches all terms.
 *
 * @param {readonly Term[]} terms
 * @param {readonly FilterColumn[]} columns
 * @returns {(row: any) => boolean}
 */
export function matcher(terms, columns) {
  const tests = terms.map((one) => testOf(one, columns));
  if (tests.length === 1) return tests[0];
  return (row) => {
    for (const test of tests) if (!test(row)) return false;
    return true;
  };
}

/**
 * Return how many rows each term hides alone, among the rows that all other terms match.
 *
 * @param {readonly Term[]} terms
 * @param {readonly FilterColumn[]} columns
 * @param {readonly unknown[]} rows
 * @returns {{term: Term, hidden: number}[]} the term that hides most first
 */
export function blame(terms, columns, rows) {
  const found = terms.map((term) => {
    const others = matcher(terms.filter((one) => one !== term), columns);
    const itself = testOf(term, columns);
    return { term, hidden: rows.filter((row) => others(row) && !itself(row)).length };
  });
  return found.filter((one) => one.hidden).sort((left, right) => right.hidden - left.hidden);
}

/** Texts of rows for terms without a key, in lower case. @type {WeakMap<object, string>} */
const TEXTS = new WeakMap();

/**
 * @param {Term} term
 * @param {readonly FilterColumn[]} columns
 * @returns {(row: any) => boolean}
 */
function testOf({ key, operator, values }, columns) {
  if (operator === "text" || operator === "-text") {
    const wanted = operator === "text";
    return (row) => textOf(row, columns).includes(values[0]) === wanted;
  }
  const column = columns.find((one) => one.id === key);
  const read = column
    ? (/** @type {any} */ row) => column.text(row).toLowerCase()
    : (/** @type {any} */ row) => labelOf(row, key).toLowerCase();
  if (operator === ">" || operator === "<" || operator === ">=" || operator === "<=") {
    const limit = Number.parseFloat(values[0]);
    const number = column?.value ?? read;
    return (row) => {
      const found = number(row);
      const value = typeof found === "number" ? found : Number.parseFloat(found ?? "");
      if (operator === ">") return value > limit;
      if (operator === "<") return value < limit;
      return operator === ">=" ? value >= limit : value <= limit;
    };
  }
  switch (operator) {
    case "=": return values.length === 1 ? (row) => read(row) === values[0] : (row) => values.includes(read(row));
    case "!=": return (row) => !values.includes(read(row));
    case "~": return (row) => values.some((one) => read(row).includes(one));
    default: return (row) => !values.some((one) => read(row).includes(one));
  }
}

/**
 * @param {any} row
 * @param {readonly FilterColumn[]} columns
 */
function textOf(row, columns) {
  let text = TEXTS.get(row);
  if (text === undefined) {
    const parts = columns.filter((one) => !one.noFilter).map((one) => one.text(row));
    if (row.labels) for (const [key, value] of Object.entries(row.labels)) parts.push(`${key}=${value}`);
    text = parts.join("\n").toLowerCase();
    TEXTS.set(row, text);
  }
  return text;
}

/**
 * Return completions of the last term of a filter.
 *
 * @param {string} draft the term that the user types
 * @param {readonly FilterColumn[]} columns
 * @param {readonly any[]} rows
 * @param {number} [most]
 * @returns {{text: string, label: string, count: number}[]} the whole term each, and the number of rows of a value
 */
export function complete(draft, columns, rows, most = 8) {
  const parts = PARTS.exec(draft);
  if (!parts) return completeKey(draft.toLowerCase(), columns, rows, most);
  const [, key, operator, rest] = parts;
  const comma = rest.lastIndexOf(",");
  const [before, begun] = [rest.slice(0, comma + 1), rest.slice(comma + 1).replaceAll("\"", "").toLowerCase()];
  const column = columns.find((one) => one.id === key);
  const counts = countsOf(rows, `=${key}`, (found) => {
    for (const row of rows) {
      const value = column ? column.text(row) : labelOf(row, key);
      if (value) found.set(value, (found.get(value) ?? 0) + 1);
    }
  });
  const listed = new Set((before.match(/"[^"]*"|[^,"]+/g) ?? []).map(bare));
  return [...counts]
    .filter(([value]) => !listed.has(value.toLowerCase()))
    .filter(([value]) => value.toLowerCase().includes(begun) && value.toLowerCase() !== begun)
    .sort(([left, many], [right, more]) =>
      Number(right.toLowerCase().startsWith(begun)) - Number(left.toLowerCase().startsWith(begun)) || more - many)
    .slice(0, most)
    .map(([value, count]) => ({ text: `${key}${operator}${before}${quoted(value)}`, label: value, count }));
}

/**
 * @param {string} begun
 * @param {readonly FilterColumn[]} columns
 * @param {readonly any[]} rows
 * @param {number} most
 */
function completeKey(begun, columns, rows, most) {
  const labels = labelCounts(rows);
  const keys = new Map([...columns.filter((one) => !one.noFilter).map((one) => /** @type {const} */ ([one.id, 0])),
    ...labels]);
  return [...keys]
    .filter(([key]) => key.toLowerCase().includes(begun))
    .sort(([left], [right]) =>
      Number(right.toLowerCase().startsWith(begun)) - Number(left.toLowerCase().startsWith(begun)))
    .slice(0, most)
    .map(([key, count]) => ({ text: `${key}=`, label: key, count }));
}

/** Numbers of values in rows, so that each key that the user types does not count them again. @type {WeakMap<object, any>} */
const COUNTS = new WeakMap();

/**
 * @param {readonly any[]} rows
 * @param {string} name
 * @param {(found: Map<string, number>) => void} count
 * @returns {Map<string, number>}
 */
function countsOf(rows, name, count) {
  let known = COUNTS.get(rows);
  if (!known) {
    known = new Map();
    COUNTS.set(rows, known);
  }
  let found = known.get(name);
  if (!found) {
    found = new Map();
    count(found);
    known.set(name, found);
  }
  return found;
}

/**
 * Return the number of rows with each label.
 *
 * @param {readonly any[]} rows
 */
export function labelCounts(rows) {
  return countsOf(rows, "", (found) => {
    for (const row of rows) {
      for (const key in row.labels) found.set(key, (found.get(key) ?? 0) + 1);
    }
  });
}
