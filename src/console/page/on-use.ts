// Builds the page from its sources on first use, for development and tests. Effects: those of the build.
// `#console-page` in package.json names this module, or in an executable the one with the built files
// (scripts/build/console-page.ts).

import { buildPage } from './build.ts'
import type { PageFile } from './files.ts'

export function loadPage(): Promise<PageFile[]> {
  return buildPage()
}
