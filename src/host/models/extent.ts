// The extents of a model's disk: its file system (erofs.ts) with one file, then the hashes. Pure.

export const erofsBlockBytes = 4096
export const modelFileName = 'model.gguf'
export const headBlocks = 2

/** Returns the number of the file system's blocks for a file of this size. */
export function erofsBlocks(fileBytes: number): number {
  return headBlocks + Math.ceil(fileBytes / erofsBlockBytes)
}

/** Returns where the hashes of the disk begin, which is where the file system ends. */
export function hashOffsetOf(fileBytes: number): number {
  return erofsBlocks(fileBytes) * erofsBlockBytes
}
