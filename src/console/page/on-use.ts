// The page where it is no part of the executable: built from its sources on first use, in development and in tests.
// Effects: those of the build. `#console-page` in package.json names this module, or in an executable one with the
// built files (scripts/build/console-page.ts).

import { buildPage } from './build.ts'
import type { PageFile } from './files.ts'

export function loadPage(): Promise<PageFile[]> {
  return buildPage()
}
