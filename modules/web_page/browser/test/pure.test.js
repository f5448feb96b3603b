import assert from "node:assert/strict";
import { test } from "node:test";

import { cleanRow } from "../src/lib/clean_row.js";
import { csvText } from "../src/lib/csv.js";
import { applyMessage } from "../src/lib/delta.js";
import { blame, complete, matcher, parseFilter, quoted } from "../src/lib/filter.js";
import { levelOf, levelOfObject, problemsOf, sharesOf } from "../src/lib/health.js";
import { safeImage, safeLink } from "../src/lib/links.js";
import { halves } from "../src/lib/middle.js";
import { command, pasteable } from "../src/lib/shell.js";
import { compareValues, parseSort, sortRows } from "../src/lib/sorting.js";
import { duration, exactTime, secondsOf } from "../src/lib/times.js";

const COLUMNS = [
  { id: "name", text: (row) => row.name, value: (row) => row.name },
  { id: "nodes", text: (row) => `${row.nodes}`, value: (row) => row.nodes },
];
const ROWS = [
  { key: "1", name: "api-berlin", nodes: 3, labels: { env: "prod" } },
  { key: "2", name: "api-paris", nodes: 12, labels: { env: "dev", team: "two words" } },
  { key: "3", name: "shop-10", nodes: 1, labels: { env: "prod" } },
  { key: "4", name: "shop-9", nodes: 1 },
];
const found = (text) => ROWS.filter(matcher(parseFilter(text), COLUMNS)).map((row) => row.key).join("");

test("a filter matches rows by columns, labels and text", () => {
  for (const [text, keys] of [
    ["", "1234"], ["name=API-berlin", "1"], ["name~api", "12"], ["name!~api", "34"], ["env=prod", "13"],
    ["env!=prod", "24"], ["env=prod,dev", "123"], ["env=prod name~shop", "3"], ["nodes>2", "12"], ["nodes>=3", "12"],
    ["nodes<3", "34"], ["nodes<=1", "34"], ["paris", "2"], ["-paris", "134"], ["team=\"two words\"", "2"],
    ["\"two words\"", "2"], ["env=", "1234"], ["env=dev=x", ""], ["unknown=x", ""], ["nodes>x", ""],
  ]) assert.equal(found(text), keys, text);
});

test("a filter survives any text", () => {
  for (const text of ["\"", "a=\"", "=", "!=x", "-", "a~,,", "\u0000", "a".repeat(5000), "=\"=\"="]) found(text);
});

test("a filter says which term hides rows", () => {
  const terms = parseFilter("env=prod name~paris");
  const said = blame(terms, COLUMNS, ROWS).map((one) => [one.term.source, one.hidden]);
  assert.deepEqual(said, [["name~paris", 2], ["env=prod", 1]]);
});

test("completion offers keys, and then values with their numbers", () => {
  const texts = (draft) => complete(draft, COLUMNS, ROWS).map((one) => one.text);
  assert.deepEqual(texts("e"), ["env=", "name=", "nodes=", "team="]);
  assert.deepEqual(complete("env=", COLUMNS, ROWS)[0], { text: "env=prod", label: "prod", count: 2 });
  assert.deepEqual(texts("env!=prod,d"), ["env!=prod,dev"]);
  assert.deepEqual(texts("team=t"), ["team=\"two words\""]);
  assert.deepEqual(texts("env=prod"), []);
  assert.equal(quoted("a,b"), "\"a,b\"");
});

test("rows are sorted with numbers in names, and missing values last", () => {
  const keys = (text) => sortRows(ROWS, parseSort(text, COLUMNS)).map((row) => row.key).join("");
  assert.equal(keys("name"), "1243");
  assert.equal(keys("-name"), "3421");
  assert.equal(keys("-nodes"), "2134");
  assert.equal(parseSort("-other", COLUMNS), null);
  assert.ok(compareValues(null, 1, 1) > 0 && compareValues(null, 1, -1) > 0);
  assert.equal(compareValues("", null, 1), 0);
});

test("messages change rows, and a missing message is noticed", () => {
  const position = { epoch: null, sequence: 0 };
  let rows = new Map();
  const apply = (message) => {
    const done = applyMessage(rows, position, message);
    rows = done.rows;
    return done.isGap;
  };
  assert.equal(apply({ e: "x", s: 4, snapshot: { a: { n: 1 }, b: { n: 2 } } }), false);
  const a = rows.get("a");
  assert.equal(apply({ e: "x", s: 5, put: { c: { n: 3 } }, delete: ["b"] }), false);
  assert.deepEqual([...rows.keys()], ["a", "c"]);
  assert.equal(apply({ e: "x", s: 5, put: {}, delete: [] }), false);
  assert.equal(apply({ e: "x", s: 3, put: { a: { n: 9 } } }), false);
  assert.equal(rows.get("a"), a);
  assert.equal(apply({ e: "x", s: 7, put: { d: {} } }), true);
  assert.equal(apply({ e: "y", s: 8, put: { e: {} } }), true);
  assert.equal(rows.has("e"), false);
  assert.equal(apply({ e: "y", s: 1, snapshot: { a: { n: 1 } } }), false);
  assert.equal(rows.get("a"), a);
});

test("states have levels, and a summary has shares", () => {
  for (const [state, level] of [
    ["current", "ok"], ["Running", "ok"], ["in progress", "progress"], ["Init:0/2", "progress"], ["failed", "bad"],
    ["Init:CrashLoopBackOff", "bad"], ["NotReady,SchedulingDisabled", "bad"], ["Ready,SchedulingDisabled", "progress"],
  ]) assert.equal(levelOf(state), level, state);
  for (const [health, state, level] of [
    ["current", "Odd", "ok"], ["in progress", "NotReady", "bad"], ["failed", "Pending", "bad"],
    ["in progress", "Pending", "progress"], ["", "Ready", "ok"], [undefined, undefined, "bad"],
  ]) assert.equal(levelOfObject({ health, state }), level, `${health} ${state}`);
  const summary = {
    deployments: { total: 3, states: { current: 2, failed: 1 } },
    pods: { total: 2, states: { Running: 1, Pending: 1 } },
  };
  assert.deepEqual(sharesOf(summary, ["deployments", "jobs"]), { ok: 2, progress: 0, bad: 1, total: 3 });
  assert.equal(sharesOf(summary, ["nodes"]), null);
  assert.equal(problemsOf(summary), 2);
  assert.equal(problemsOf(undefined), null);
});

test("only safe addresses become links and images", () => {
  const code = "java" + "script:alert(1)";
  for (const bad of [code, ` ${code}`, `Title|${code}`, `https://a|${code}`, "data:text/html,x", "//a.example", "/ui",
    "https://a b", "https://a\u0000", "", null, `https://${"a".repeat(600)}`]) assert.equal(safeLink(bad), "", bad);
  for (const good of ["https://a.example/x?y=z", "HTTP://a.example", "mailto:a@b.example"]) {
    assert.equal(safeLink(good), good);
  }
  assert.equal(safeImage("https://a.example/x.png"), "");
  assert.equal(safeImage("data:text/html;base64,AA"), "");
  assert.equal(safeImage("data:image/png;base64,AA"), "data:image/png;base64,AA");
});

test("rows of unexpected types stay rows", () => {
  const odd = {
    cluster: "c", kind: 7, name: null, state: {}, reason: ["x"], ready: "3", wanted: 4, images: "nginx", ports: [80, {}],
    labels: ["a"], capacity: { cpu: 4, memory: null }, selector: null,
  };
  assert.deepEqual(cleanRow(odd), {
    cluster: "c", kind: "7", name: "", state: "", reason: "", wanted: 4, images: [], ports: ["80", ""],
    labels: {}, capacity: { cpu: "4", memory: "" }, selector: {},
  });
  assert.equal(found("constructor=x"), "");
  assert.deepEqual(complete("constructor=", COLUMNS, ROWS), []);
});

test("clusters do not choose the commands that users paste", () => {
  const one = (name) => command`kubectl describe pod ${name} now`;
  assert.equal(one("web-1.x"), "kubectl describe pod web-1.x now");
  for (const bad of ["a;b", "$(x)", "`x`", "-x", "", "a b", "a\nb", "a'b", "a\u001b"]) assert.equal(one(bad), "");
  assert.equal(pasteable("a\n\u001b[31m\u202eb"), "a[31mb");
});

test("times", () => {
  for (const [seconds, text] of [
    [-5, "0s"], [0, "0s"], [119, "119s"], [120, "2m"], [3599, "59m"], [3600, "1h"], [5400, "1h 30m"],
    [86400, "1d"], [187200, "2d 4h"], [864000 + 7200, "10d"], [36000 + 60, "10h"],
  ]) assert.equal(duration(seconds), text);
  assert.equal(secondsOf("1970-01-01T00:01:00Z"), 60);
  assert.ok(Number.isNaN(secondsOf("")));
  assert.equal(exactTime(60, "UTC"), "1970-01-01 00:01:00 UTC");
  assert.equal(exactTime(Number.NaN, "UTC"), "");
});

test("CSV quotes its cells, and has no formulas", () => {
  const columns = [{ title: "Name", text: (row) => row.name }, { title: "N", text: () => "=1+1" }];
  assert.equal(csvText(columns, [{ name: "a \"b\", c" }]), "Name,N\r\n\"a \"\"b\"\", c\",'=1+1\r\n");
});

test("long names are cut in the middle", () => {
  assert.deepEqual(halves("short"), ["short", ""]);
  const [start, end] = halves("deployment-with-a-very-long-name-5d9f8c7b-x2z4q");
  assert.equal(end.length, 10);
  assert.equal(start + end, "deployment-with-a-very-long-name-5d9f8c7b-x2z4q");
});
