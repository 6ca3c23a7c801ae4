// The data of the report: base64 of gzip of JSON, in script elements that no browser runs.

type FromBase64 = { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };

/** Bytes of base64. Browsers that can do it themselves are a hundred times faster. */
export function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  const own = (Uint8Array as unknown as FromBase64).fromBase64;
  if (own) return own.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

async function unpack(bytes: Uint8Array<ArrayBuffer>): Promise<unknown> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const parts = new Map<string, Promise<unknown>>();

/**
 * A part of the data by its name, or `null` if the report does not have it. The text is freed after
 * parsing.
 */
export function part(name: string): Promise<unknown> {
  let found = parts.get(name);
  if (!found) {
    const element = document.getElementById(`mgz-${name}`);
    found = element ? unpack(bytesOf(element.textContent ?? "")) : Promise.resolve(null);
    element?.remove();
    parts.set(name, found);
  }
  return found;
}
