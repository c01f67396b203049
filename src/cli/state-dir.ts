// Where the state directory is. Pure.

import { resolve } from 'node:path'

const stateDirDefault = '/var/lib/strongroom'

type Environment = { readonly [name: string]: string | undefined }

/** `--state-dir`, else STRONGROOM_STATE_DIR, else the default; absolute. */
export function resolveStateDir({ path, env }: { path: string | undefined; env: Environment }): string {
  return resolve(path ?? (env.STRONGROOM_STATE_DIR || stateDirDefault))
}
