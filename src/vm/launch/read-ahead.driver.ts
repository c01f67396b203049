// Does work in advance that the first VM after a daemon start would wait for (0.6 s and more): reads and measures the
// image's files, unpacks its kernel. Effects: reads files, writes one.

import type { Logger } from '../../base/log.ts'
import type { VmSpec } from '../engine.ts'
import type { Image } from './image.driver.ts'
import { openImageFile } from './image-file.driver.ts'
import type { Launcher } from './launcher.driver.ts'
import type { UnpackedKernels } from './unpacked-kernel.driver.ts'

export type ReadAheadDeps = {
  readonly image: (name: string) => Image | Promise<Image>
  readonly launcher: Pick<Launcher, 'readAhead'>
  readonly kernels: UnpackedKernels | null
  readonly log: Logger
}

/** Never rejects; the first VM reports a faulty image. */
export async function readAhead(
  { image: load, launcher, kernels, log }: ReadAheadDeps,
  vm: Pick<VmSpec, 'image' | 'vcpus' | 'memoryMib'>,
): Promise<void> {
  try {
    const image = await load(vm.image)
    await launcher.readAhead({ ...vm, workload: null }, image)
    if (kernels === null) return
    using kernel = openImageFile(image.kernel)
    using _ = await kernels.open(kernel, image.manifest.files.kernel.sha256)
  } catch (error) {
    log.debug('an image could not be read ahead', { image: vm.image, error })
  }
}
