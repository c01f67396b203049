// The page's files, ready to be served. Effects: those of loading them, once.

import { loadPage } from '#console-page'
import { type ServedFile, servedFiles } from './files.ts'

let loading: Promise<ReadonlyMap<string, ServedFile>> | null = null

/** Rejects where the page cannot be built, which only happens with its sources. */
export function pageFiles(): Promise<ReadonlyMap<string, ServedFile>> {
  loading ??= loadPage().then(servedFiles)
  return loading
}
