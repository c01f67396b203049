// A kernel module's file: its attributes in configfs, and the layouts of its structures. Pure. ELF-64 and Linux
// Documentation/bpf/btf.rst.

type Section = {
  readonly name: string
  readonly type: number
  readonly at: number
  readonly bytes: number
  readonly info: number
}
type ModuleSymbol = { readonly name: string; readonly section: number; readonly value: number; readonly bytes: number }

const SYMBOL_BYTES = 24
const RELOCATION_BYTES = 24
const SECTION_BYTES = 64
const RELOCATIONS = 4

function openModule(file: Uint8Array) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength)
  const u64 = (at: number) => Number(view.getBigUint64(at, true))
  const text = (at: number) => Buffer.from(file.subarray(at, file.indexOf(0, at))).toString('latin1')
  const table = u64(0x28)
  const rows = Array.from({ length: view.getUint16(0x3c, true) }, (_, index) => table + index * SECTION_BYTES)
  const names = u64((rows[view.getUint16(0x3e, true)] ?? 0) + 0x18)
  const sections = rows.map((at): Section => {
    const [type, info] = [view.getUint32(at + 4, true), view.getUint32(at + 0x2c, true)]
    return { name: text(names + view.getUint32(at, true)), type, at: u64(at + 0x18), bytes: u64(at + 0x20), info }
  })
  const sectionOf = (name: string) => {
    const found = sections.find(section => section.name === name)
    if (found === undefined) throw new Error(`the module has no section ${name}`)
    return found
  }
  const [symtab, strtab] = [sectionOf('.symtab'), sectionOf('.strtab')]
  const symbols = Array.from({ length: symtab.bytes / SYMBOL_BYTES }, (_, index): ModuleSymbol => {
    const at = symtab.at + index * SYMBOL_BYTES
    const [name, section] = [text(strtab.at + view.getUint32(at, true)), view.getUint16(at + 6, true)]
    return { name, section, value: u64(at + 8), bytes: u64(at + 16) }
  })
  /** The text to which a pointer at this place of a section will point. */
  const pointedText = (section: number, offset: number): string => {
    for (const { type, info, at, bytes } of sections) {
      if (type !== RELOCATIONS || info !== section) continue
      for (let entry = at; entry < at + bytes; entry += RELOCATION_BYTES) {
        if (u64(entry) !== offset) continue
        const symbol = symbols[view.getUint32(entry + 12, true)]
        return text((sections[symbol?.section ?? 0]?.at ?? 0) + (symbol?.value ?? 0) + u64(entry + 16))
      }
    }
    throw new Error(`nothing is relocated at ${offset}`)
  }
  return { view, u64, text, sections, sectionOf, symbols, pointedText }
}

/** Mode as chmod(2) has it. `bytesMax` is null for an attribute of text. */
export type ConfigAttribute = { readonly name: string; readonly mode: number; readonly bytesMax: number | null }

/** struct configfs_attribute: name, owner, mode; struct configfs_bin_attribute: the same, private, maximum. */
const ATTRIBUTE = { bytes: 40, mode: 16 } as const
const BIN_ATTRIBUTE = { bytes: 72, bytesMax: 48 } as const

/** Returns the attributes whose variables begin with `prefix`. */
export function configAttributes(file: Uint8Array, prefix: string): ConfigAttribute[] {
  const { view, u64, sections, symbols, pointedText } = openModule(file)
  return symbols.flatMap(({ name, section, value, bytes }): ConfigAttribute[] => {
    const isBinary = bytes === BIN_ATTRIBUTE.bytes
    if (!name.startsWith(prefix) || !(isBinary || bytes === ATTRIBUTE.bytes)) return []
    const at = (sections[section]?.at ?? 0) + value
    return [
      {
        name: pointedText(section, value),
        mode: view.getUint16(at + ATTRIBUTE.mode, true),
        bytesMax: isBinary ? u64(at + BIN_ATTRIBUTE.bytesMax) : null,
      },
    ]
  })
}

export type StructLayout = { readonly bytes: number; readonly offsets: readonly number[] }

const BTF_STRUCT = 4
/** Bytes after the head of a type, for each kind: fixed, and for each member. */
const BTF_TAIL: readonly (readonly [fixed: number, each: number])[] = [
  ...[
    [0, 0],
    [4, 0],
    [0, 0],
    [12, 0],
    [0, 12],
    [0, 12],
    [0, 8],
    [0, 0],
    [0, 0],
    [0, 0],
    [0, 0],
    [0, 0],
    [0, 0],
  ],
  ...[
    [0, 8],
    [4, 0],
    [0, 12],
    [0, 0],
    [4, 0],
    [0, 0],
    [0, 12],
  ],
] as unknown as readonly (readonly [number, number])[]

/**
 * Returns the layouts of structures that the module itself declares. Its names follow those of the kernel, whose length
 * the file does not have: it is the one at which each of these names belongs to a structure.
 */
export function structLayouts(file: Uint8Array, names: readonly string[]): Record<string, StructLayout> {
  const { view, text, sectionOf } = openModule(file)
  const { at } = sectionOf('.BTF')
  const head = view.getUint32(at + 4, true)
  const [types, typeBytes, strings, stringBytes] = [8, 12, 16, 20].map(field => view.getUint32(at + field, true)) as [
    number,
    number,
    number,
    number,
  ]
  const found = new Map<number, StructLayout>()
  for (let entry = at + head + types; entry < at + head + types + typeBytes; ) {
    const [name, info, bytes] = [0, 4, 8].map(field => view.getUint32(entry + field, true)) as [number, number, number]
    const [kind, count] = [(info >>> 24) & 0x1f, info & 0xffff]
    const [fixed, each] = BTF_TAIL[kind] ?? [0, 0]
    if (kind === BTF_STRUCT) {
      const members = Array.from({ length: count }, (_, index) => entry + 12 + 12 * index)
      found.set(name, { bytes, offsets: members.map(member => (view.getUint32(member + 8, true) & 0xffffff) / 8) })
    }
    entry += 12 + fixed + each * count
  }
  const own = new Map<string, number>()
  for (let offset = 0; offset < stringBytes; ) {
    const name = text(at + head + strings + offset)
    own.set(name, offset)
    offset += name.length + 1
  }
  const offsets = names.map(name => own.get(name) ?? Number.NaN)
  const bases = [...found.keys()].map(name => name - (offsets[0] ?? 0))
  const base = bases.filter(candidate => offsets.every(offset => found.has(candidate + offset)))
  if (base.length !== 1) throw new Error(`${base.length} places of the names ${names.join(', ')}, not one`)
  return Object.fromEntries(
    names.map((name, index) => [name, found.get((base[0] ?? 0) + (offsets[index] ?? 0))]),
  ) as Record<string, StructLayout>
}
