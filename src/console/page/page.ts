// The page's files, ready to serve. Effects: those of loading them, once.

import { loadPage } from '#console-page'
import { type ServedFile, servedFiles } from './files.ts'

let loading: Promise<ReadonlyMap<string, ServedFile>> | null = null

/** Returns the files. Rejects if the page cannot be built, which can only happen if it is built from its sources. */
export function pageFiles(): Promise<ReadonlyMap<string, ServedFile>> {
  loading ??= loadPage().then(servedFiles)
  return loading
}
