// When versions are chosen anew: on request alone. Pure, apart from the functions it is given.

import { ImageFault } from './image-fault.ts'

/** `now` before the build, `when_gone` when the mirror no longer has a locked package, or `never`. */
export type RelockWhen = 'now' | 'when_gone' | 'never'

export const relockVariable = 'STRONGROOM_RELOCK'

/** From `--relock` and STRONGROOM_RELOCK. Throws usage. */
export function relockWhen(flag: boolean, variable: string | undefined): RelockWhen {
  if (variable !== undefined && variable !== '' && variable !== '1') {
    throw new ImageFault('usage', `${relockVariable} is ${JSON.stringify(variable)}; set it to 1, or not at all`)
  }
  if (flag) return 'now'
  return variable === '1' ? 'when_gone' : 'never'
}

export type RelockingBuild = {
  readonly when: RelockWhen
  readonly build: () => Promise<string>
  /** The changes, for people. */
  readonly relock: () => Promise<string[]>
  readonly report: (line: string) => void
}

/** The image's directory. Locks anew at most once, and only as `when` allows. */
export async function buildRelocking({ when, build, relock, report }: RelockingBuild): Promise<string> {
  const relockAloud = async () => {
    const changes = await relock()
    for (const change of changes) report(change)
    report(changes.length === 0 ? 'lock unchanged' : '*** THE LOCK HAS CHANGED: MEASUREMENTS CHANGE TOO ***')
  }
  if (when === 'now') await relockAloud()
  try {
    return await build()
  } catch (error) {
    if (when !== 'when_gone' || !(error instanceof ImageFault) || error.code !== 'package_gone') throw error
    report(`${error.message}; ${relockVariable}=1: locking anew`)
    await relockAloud()
    return await build()
  }
}
