// JSON files checked against their schema at the edge. Reads and writes single files.

import { rename, writeFile } from 'node:fs/promises'
import type { Static, TSchema } from '@sinclair/typebox'
import { Value } from '@sinclair/typebox/value'
import { ImageFault } from './image-fault.ts'

/** Throws recipe_invalid naming the first field at fault. */
export async function readChecked<T extends TSchema>(schema: T, path: string): Promise<Static<T>> {
  let value: unknown
  try {
    value = await Bun.file(path).json()
  } catch (error) {
    throw new ImageFault('recipe_invalid', `read ${path}: ${error instanceof Error ? error.message : error}`, error)
  }
  const wrong = Value.Errors(schema, value).First()
  if (wrong !== undefined) throw new ImageFault('recipe_invalid', `${path}: ${wrong.path || '/'}: ${wrong.message}`)
  return value as Static<T>
}

/** Writes beside and renames, so that a reader never sees half a file. */
export async function writeJson(path: string, value: unknown): Promise<void> {
  await writeFile(`${path}.partial`, `${JSON.stringify(value, null, 2)}\n`, { mode: 0o644 })
  await rename(`${path}.partial`, path)
}
