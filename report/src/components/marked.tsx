/** A sentence with what stands in backquotes, names and commands, as code. */
export function Marked({ text }: { text: string }) {
  return <>{text.split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</>;
}
