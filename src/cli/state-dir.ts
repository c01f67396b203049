// Where the state directory is. Pure.

import { resolve } from 'node:path'

const stateDirDefault = '/var/lib/strongroom'

type Environment = { readonly [name: string]: string | undefined }

/** Returns the absolute path of `--state-dir`, otherwise of STRONGROOM_STATE_DIR, otherwise the default. */
export function resolveStateDir({ path, env }: { path: string | undefined; env: Environment }): string {
  return resolve(path ?? (env.STRONGROOM_STATE_DIR || stateDirDefault))
}
