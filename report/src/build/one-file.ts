// Build step: one HTML file with style and code in it, which runs nothing else and asks for nothing.
import { createHash } from "node:crypto";
import type { Plugin } from "vite";

const hash = (text: string): string =>
  `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

/** Puts the code and the style into the page, with a policy that allows these two by their hashes. */
export function oneFile(name: string): Plugin {
  return {
    name: "one-file",
    enforce: "post",
    generateBundle(_, bundle) {
      let page = "";
      let code = "";
      let style = "";
      for (const [file, part] of Object.entries(bundle)) {
        if (part.type === "chunk") code += part.code;
        else if (file.endsWith(".css")) style += String(part.source);
        else if (file.endsWith(".html")) page = String(part.source);
        else throw new Error(`${file} cannot be put into the page`);
        delete bundle[file];
      }
      // Neither may end its own element.
      code = code.trim().replaceAll("</script", "<\\/script").replaceAll("<!--", "<\\!--");
      style = style.trim().replaceAll("</style", "<\\/style");
      const policy = [
        "default-src 'none'",
        `script-src ${hash(code)}`,
        `style-src ${hash(style)}`,
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
      ].join("; ");
      page = page
        .replace(/<script type="module"[^>]*><\/script>/, "")
        .replace(/<link rel="stylesheet"[^>]*>/, "")
        .replace("<!--mgz-policy-->", () => `<meta http-equiv="Content-Security-Policy" content="${policy}" />`)
        .replace("</head>", () => `<style>${style}</style>\n<script type="module">${code}</script>\n</head>`);
      this.emitFile({ type: "asset", fileName: name, source: page });
    },
  };
}
