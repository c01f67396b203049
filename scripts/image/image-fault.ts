// Why an image was not built, and what the builder should do about it. Pure.

/** Every way an image build fails, with its remedy. */
export const IMAGE_FAULTS = {
  usage: 'see --help',
  recipe_invalid: 'correct the recipe or the lock file',
  tool_missing: 'install the named tool (scripts/setup does)',
  tool_failed: 'read the tool output above',
  tool_timeout: 'look for a wedged disk or network',
  mirror_unknown: 'configure a Debian mirror in the apt sources of this machine, or set STRONGROOM_SNAPSHOT_MIRROR',
  package_gone:
    'set STRONGROOM_SNAPSHOT_MIRROR to a mirror that keeps old versions, or accept new measurements with --relock (in scripts that build: STRONGROOM_RELOCK=1)',
  release_refused: 'use a mirror that is up to date; the lock is unchanged',
  digest_mismatch: 'delete the named file and build again; if it persists the mirror serves something else',
  executable_missing:
    'build it first (bun scripts/build-guest.ts, build-builder.ts or build-enclave.ts), or name one with --executable',
  library_missing: 'add the package that has it to the recipe, and relock',
  module_missing: 'correct common/modules.json for this kernel',
  busy: 'another build holds the image cache; wait for it',
} as const satisfies Record<string, string>

export type ImageFaultCode = keyof typeof IMAGE_FAULTS

/** A failed image build. `code` is a row of IMAGE_FAULTS. */
export class ImageFault extends Error {
  readonly code: ImageFaultCode

  constructor(code: ImageFaultCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = 'ImageFault'
    this.code = code
  }

  get remedy(): string {
    return IMAGE_FAULTS[this.code]
  }
}
