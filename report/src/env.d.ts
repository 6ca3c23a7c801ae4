declare module "virtual:definitions" {
  import type { Definition } from "./build/definitions.ts";
  const definitions: Record<string, Definition>;
  export default definitions;
}
declare module "*.css";
