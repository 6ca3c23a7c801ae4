// Numbers for people: three digits, as the text output has them.

const POWERS = ["", "K", "M", "G", "T", "P", "E"];

function digits(x: number): string {
  const a = Math.abs(x);
  if (a >= 99.95) return x.toFixed(0);
  if (a >= 9.995) return x.toFixed(1);
  return x.toFixed(2);
}

function scaled(x: number, step: number, units: string[]): string {
  let at = 0;
  let value = x;
  while (Math.abs(value) >= step * 0.9995 && at + 1 < units.length) {
    value /= step;
    at += 1;
  }
  return (at === 0 && Number.isInteger(x) ? String(x) : digits(value)) + (units[at] ?? "");
}

/** A count or a plain number. */
export function count(x: number | null): string {
  if (x === null) return "–";
  if (x !== 0 && Math.abs(x) < 0.01) return x.toPrecision(2);
  return scaled(x, 1000, POWERS);
}

export function bytes(x: number | null): string {
  if (x === null) return "–";
  return scaled(x, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
}

export function percent(x: number | null): string {
  if (x === null) return "–";
  if (x > 0 && x < 0.05) return "<0.1 %";
  return `${x >= 99.95 || x === 0 ? x.toFixed(0) : x.toFixed(1)} %`;
}

/** A remedy whose target is a source line, without the folders of its file. */
export const shortRemedy = (remedy: string): string => remedy.replace(/ of \/.*\//, " of ");

export function seconds(x: number | null): string {
  if (x === null) return "–";
  if (x === 0) return "0 s";
  if (x < 1e-3) return `${digits(x * 1e6)} µs`;
  if (x < 1) return `${digits(x * 1e3)} ms`;
  if (x < 120) return `${digits(x)} s`;
  return `${Math.floor(x / 60)} min ${Math.round(x % 60)} s`;
}

/** A range, with the unit once where both ends have the same. */
export function range(lo: string, hi: string): string {
  const unit = / .+$/.exec(hi)?.[0] ?? /[A-Z]$/.exec(hi)?.[0] ?? "";
  return unit && lo.endsWith(unit) ? `${lo.slice(0, -unit.length)}–${hi}` : `${lo}–${hi}`;
}

/** Names of files without their folders; other names as they are. */
export function base(name: string): string {
  return /^\/[^ ]+$/.test(name) ? (name.split("/").pop() ?? name) : name;
}

/** An address without leading zeros, or what stands for it. */
export function address(text: string): string {
  return /^0x[0-9a-f]+$/i.test(text) ? text : "–";
}

/** Shortens a long name: without template arguments, then without parameters and return type, then without outer namespaces; at last it is cut in the middle. */
export function short(text: string, most = 60): string {
  let out = text;
  if (out.length > most) out = elide(out);
  if (out.length > most) out = withoutParameters(out);
  for (let at = out.indexOf("::"); at >= 0; at = out.indexOf("::", at + 2)) {
    if (out.length > most && out.length - at + 1 <= most) return `…${out.slice(at)}`;
  }
  if (out.length <= most) return out;
  const half = Math.floor((most - 1) / 2);
  return `${out.slice(0, half)}…${out.slice(-half)}`;
}

/** The file name of a module. Extension modules of Python have their name in Python. */
export const moduleName = (path: string): string => base(path).replace(/(\.cpython-|\.abi3\.so|\.pypy).*$/, "");

/** A function's name. Code without a name has its address and module: `code at 0x4f0 of libz.so.1`. */
export function codeName(fn: string, module: string): string {
  const address = /^\[(0x[0-9a-f]+)\]$/.exec(fn)?.[1];
  const of = module ? ` of ${moduleName(module)}` : "";
  return address ? `code at ${address}${of}` : fn.startsWith("[") ? `${fn}${of}` : fn;
}

/** A function's name without parameters and return type; an allocation's name without parameters. */
function withoutParameters(text: string): string {
  const signature = /^(?:[^()]* )?([^\s()]+)\(.*\)(?: const)?$/.exec(text);
  if (signature && !signature[1]!.endsWith("operator") && !/ [^ ]+:\d+ \(/.test(text)) return signature[1]!;
  return text.replace(/([\w>])\([^()]*\)/g, "$1");
}

function elide(text: string): string {
  let depth = 0;
  let out = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    const isOperator = c === "<" && /operator<?$/.test(text.slice(Math.max(0, i - 9), i));
    if (c === "<" && !isOperator && i > 0) {
      if (depth === 0) out += "<…";
      depth += 1;
    } else if (c === ">" && depth > 0 && text[i - 1] !== "-") {
      depth -= 1;
      if (depth === 0) out += ">";
    } else if (depth === 0) out += c;
  }
  return depth === 0 ? out : text;
}
