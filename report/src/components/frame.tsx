// The frame of all pages: names of views, the selection, definitions on hover.
import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary } from "preact/hooks";
import { changed, place, write, type View } from "../state.ts";
import { TipBox } from "./tip.tsx";

export interface Shown {
  name: string;
  show: () => ComponentChildren;
}

function Body({ view, shown }: { view: View; shown: Shown }) {
  const [error, reset] = useErrorBoundary();
  useEffect(reset, [view]);
  if (error) return <p class="empty" role="alert">This view cannot show these data: {String(error)}</p>;
  return <>{shown.show()}</>;
}

/** The page. `title` is what is looked at; `above` stands over all views. */
export function Frame({ views, title, tools, above, first }: { views: Partial<Record<View, Shown>>; title: string; tools?: ComponentChildren; above?: ComponentChildren; first: View }) {
  const { view } = place.value;
  const shown = views[view];
  return (
    <>
      <header>
        <strong class="logo">mgz</strong>
        <nav aria-label="Views">
          {(Object.keys(views) as View[]).map((v) => (
            <a key={v} href={write({ ...changed({ tab: undefined }), view: v })} {...(v === view ? { "aria-current": "page" as const } : {})}>
              {views[v]?.name}
            </a>
          ))}
        </nav>
        {tools}
      </header>
      {above}
      <main>
        {view !== first && <h1 class="hidden">{shown?.name} of {title}</h1>}
        {shown && <Body key={view} view={view} shown={shown} />}
      </main>
      <TipBox />
      <svg class="hidden" aria-hidden="true"><defs><pattern id="hatch" width="3" height="3" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="1.2" height="3" class="tick" /></pattern></defs></svg>
    </>
  );
}
