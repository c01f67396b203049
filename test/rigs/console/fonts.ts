// A browser that draws the same text on each machine: fonts of one Debian package alone, no hinting, no subpixels.
// Effects: files in the browser's folder.

import { existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ChromiumOptions } from '../../../scripts/rigs/chromium.ts'

const packageName = 'fonts-dejavu-core'
const packageDir = '/usr/share/fonts/truetype/dejavu'
/** Other packages put more into that directory. */
const FONTS = ['DejaVuSans.ttf', 'DejaVuSans-Bold.ttf', 'DejaVuSansMono.ttf', 'DejaVuSansMono-Bold.ttf']

const FLAGS = [
  '--font-render-hinting=none',
  '--disable-lcd-text',
  '--disable-font-subpixel-positioning',
  '--force-color-profile=srgb',
  '--force-device-scale-factor=1',
  '--hide-scrollbars',
]

export function fixedFonts(profile: string): ChromiumOptions {
  const fonts = join(profile, 'fonts')
  mkdirSync(fonts)
  for (const name of FONTS) {
    const from = join(packageDir, name)
    if (!existsSync(from)) throw new Error(`there is no ${from}: apt-get install ${packageName}, as scripts/setup does`)
    symlinkSync(from, join(fonts, name))
  }
  const file = join(profile, 'fonts.conf')
  writeFileSync(file, configuration(fonts, join(profile, 'font-cache')))
  return { args: FLAGS, env: { FONTCONFIG_FILE: file } }
}

function configuration(fonts: string, cache: string): string {
  const alias = (name: string, font: string) =>
    `<alias binding="same"><family>${name}</family><prefer><family>${font}</family></prefer></alias>`
  return `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
<dir>${fonts}</dir>
<cachedir>${cache}</cachedir>
${alias('sans-serif', 'DejaVu Sans')}
${alias('system-ui', 'DejaVu Sans')}
${alias('monospace', 'DejaVu Sans Mono')}
<match target="font">
<edit name="antialias" mode="assign"><bool>true</bool></edit>
<edit name="hinting" mode="assign"><bool>false</bool></edit>
<edit name="rgba" mode="assign"><const>none</const></edit>
</match>
</fontconfig>
`
}
