// Golden pictures under test/golden/console. `STRONGROOM_GOLDEN=write` writes them anew; they are then looked at.
// Effects: those files; where a picture differs, files in a temporary directory that stays.

import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pixelmatch from 'pixelmatch'
import { PNG } from 'pngjs'

const directory = join(import.meta.dir, '../../golden/console')
/** Colours closer than this are the same; edges of glyphs are not compared. */
const threshold = 0.1
/** Pixels of ten thousand that may differ: another release of the browser rounds differently here and there. */
const tolerated = 5

/** Throws where the picture is another than the golden one of that name. */
export function expectPicture(name: string, bytes: Uint8Array): void {
  const path = join(directory, `${name}.png`)
  const seen = PNG.sync.read(Buffer.from(bytes))
  if (process.env.STRONGROOM_GOLDEN === 'write') {
    mkdirSync(directory, { recursive: true })
    writeFileSync(path, packed(seen))
  }
  if (!existsSync(path)) throw new Error(`no golden picture ${name}; write it with STRONGROOM_GOLDEN=write`)
  const golden = PNG.sync.read(readFileSync(path))
  const { width, height } = golden
  if (seen.width !== width || seen.height !== height) {
    const file = keep(name, { seen })
    throw new Error(`${name} is ${seen.width} × ${seen.height} pixels instead of ${width} × ${height}: ${file}`)
  }
  const difference = new PNG({ width, height })
  const count = pixelmatch(golden.data, seen.data, difference.data, width, height, { threshold })
  if (count * 10_000 <= tolerated * width * height) return
  const where = keep(name, { seen, difference })
  throw new Error(`${name} differs in ${count} pixels: ${where} (STRONGROOM_GOLDEN=write takes it over)`)
}

function keep(name: string, pictures: Readonly<Record<string, PNG>>): string {
  const kept = mkdtempSync(join(tmpdir(), 'strongroom-picture-'))
  return Object.entries(pictures)
    .map(([kind, picture]) => {
      const file = join(kept, `${name}.${kind}.png`)
      writeFileSync(file, packed(picture))
      return file
    })
    .join(', ')
}

/** Without alpha, which no page has; 32 steps of each colour halve the file and stay below the threshold. */
function packed(picture: PNG): Buffer {
  const { data } = picture
  for (const [at, value] of data.entries()) data[at] = (value & 0xf8) | (value >> 5)
  const small = { deflateLevel: 9, deflateStrategy: 0, filterType: 0 }
  return PNG.sync.write(picture, { colorType: 2, inputColorType: 6, ...small })
}
