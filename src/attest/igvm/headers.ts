// The variable headers of IGVM v1 files (microsoft/igvm, igvm_defs). Pure. file.ts reads the surrounding file.

import { type Layout, readRecord, type Values, writeRecord } from '../encoding/layout.ts'
import { Malformed, wellFormed } from '../malformed.ts'

/** One layout for each structure, as in igvm_defs (IGVM_VHS_*). */
export const IGVM_LAYOUTS = {
  supportedPlatform: {
    compatibilityMask: [0, 4],
    highestVtl: [4, 1],
    platform: [5, 1],
    platformVersion: [6, 2],
    sharedGpaBoundary: [8, 8],
  },
  guestPolicy: { policy: [0, 8], compatibilityMask: [8, 4], reserved: [12, 4] },
  parameterArea: { sizeBytes: [0, 8], index: [8, 4], fileOffset: [12, 4] },
  pageData: {
    gpa: [0, 8],
    compatibilityMask: [8, 4],
    fileOffset: [12, 4],
    flags: [16, 4],
    dataType: [20, 2],
    reserved: [22, 2],
  },
  parameterInsert: { gpa: [0, 8], compatibilityMask: [8, 4], index: [12, 4] },
  parameter: { index: [0, 4], byteOffset: [4, 4] },
  vpContext: {
    gpa: [0, 8],
    compatibilityMask: [8, 4],
    fileOffset: [12, 4],
    vpIndex: [16, 2],
    reserved: [18, 2],
  },
  requiredMemory: {
    gpa: [0, 8],
    compatibilityMask: [8, 4],
    sizeBytes: [12, 4],
    flags: [16, 4],
    reserved: [20, 4],
  },
  snpIdBlock: {
    compatibilityMask: [0, 4],
    authorKeyEnabled: [4, 1],
    reserved: [5, 3],
    measurement: [8, 48],
    familyId: [56, 16],
    imageId: [72, 16],
    version: [88, 4],
    guestSvn: [92, 4],
    idKeyAlgorithm: [96, 4],
    authorKeyAlgorithm: [100, 4],
    idSignature: [104, 144],
    idKeyCurve: [248, 4],
    idKeyReserved: [252, 4],
    idKeyPoint: [256, 144],
    authorSignature: [400, 144],
    authorKeyCurve: [544, 4],
    authorKeyReserved: [548, 4],
    authorKeyPoint: [552, 144],
  },
  errorRange: { gpa: [0, 8], compatibilityMask: [8, 4], sizeBytes: [12, 4] },
} as const satisfies Record<string, Layout>

type Layouts = typeof IGVM_LAYOUTS
type Fields<Name extends keyof Layouts, Omitted extends string = never> = Omit<Values<Layouts[Name]>, Omitted>

/** Header types (IGVM_VHT_*). */
const IGVM_TYPES = {
  supportedPlatform: 0x001,
  guestPolicy: 0x101,
  parameterArea: 0x301,
  pageData: 0x302,
  parameterInsert: 0x303,
  vpContext: 0x304,
  requiredMemory: 0x305,
  snpIdBlock: 0x30b,
  errorRange: 0x30d,
} as const

/** Types with structure IGVM_VHS_PARAMETER: what the loader writes into a parameter area. Never measured. */
const IGVM_PARAMETERS = {
  vpCount: 0x307,
  srat: 0x308,
  madt: 0x309,
  mmioRanges: 0x30a,
  memoryMap: 0x30c,
  commandLine: 0x30e,
  slit: 0x30f,
  pptt: 0x310,
  deviceTree: 0x312,
  environmentInfo: 0x313,
} as const satisfies Record<string, number>

type IgvmParameter = keyof typeof IGVM_PARAMETERS

/** Platform numbers (IgvmPlatformType). */
export const IGVM_PLATFORMS = { native: 0, vsmIsolation: 1, sevSnp: 2, tdx: 3, sev: 4, sevEs: 5 } as const

const PAGE_DATA_TYPES = { normal: 0, secrets: 1, cpuid: 2, cpuidXf: 3 } as const
export type PageDataType = keyof typeof PAGE_DATA_TYPES

/** IgvmPageDataFlags. 2 MiB pages (bit 0) are not supported, here or in the library that QEMU uses. */
const unmeasuredFlag = 2
const sharedFlag = 4
/** RequiredMemoryFlags. */
const vtl2ProtectableFlag = 1
/** Marks types whose structures a loader may ignore. */
const optionalBit = 0x8000_0000

export type IgvmHeader =
  | ({ readonly kind: 'supportedPlatform' } & Fields<'supportedPlatform'>)
  | ({ readonly kind: 'guestPolicy' } & Fields<'guestPolicy', 'reserved'>)
  | ({ readonly kind: 'parameterArea'; readonly data: Uint8Array | null; readonly sizeBytes: number } & Fields<
      'parameterArea',
      'fileOffset' | 'sizeBytes'
    >)
  | ({
      readonly kind: 'pageData'
      readonly isUnmeasured: boolean
      /** Assigned to the guest but visible to the host; never measured. */
      readonly isShared: boolean
      readonly dataType: PageDataType
      /** One page; null is a page of zeros. */
      readonly data: Uint8Array | null
    } & Fields<'pageData', 'fileOffset' | 'flags' | 'dataType' | 'reserved'>)
  | ({ readonly kind: 'parameterInsert' } & Fields<'parameterInsert'>)
  | ({ readonly kind: 'parameter'; readonly parameter: IgvmParameter } & Fields<'parameter'>)
  | ({
      readonly kind: 'vpContext'
      /**
       * The VMSA: 4096 bytes. Null for platforms other than SEV-ES and SEV-SNP, whose contexts this library does not
       * read.
       */
      readonly state: Uint8Array | null
      /**
       * Padding up to the next header. Zero in the specification, but igvm-tooling writes other bytes. The checksum
       * covers it.
       */
      readonly padding: Uint8Array
    } & Fields<'vpContext', 'fileOffset' | 'reserved'>)
  | ({ readonly kind: 'requiredMemory'; readonly isVtl2Protectable: boolean } & Fields<
      'requiredMemory',
      'flags' | 'reserved'
    >)
  | ({ readonly kind: 'snpIdBlock' } & Fields<'snpIdBlock', 'reserved' | 'idKeyReserved' | 'authorKeyReserved'>)
  | ({ readonly kind: 'errorRange' } & Fields<'errorRange'>)
  | { readonly kind: 'optional'; readonly type: number; readonly body: Uint8Array }

export type IgvmKind = IgvmHeader['kind']

/** Returns the data of a header at a file offset. */
type TakeData = (fileOffset: number, sizeBytes: number) => Uint8Array | null

const pageBytes = 4096
const parameterAreaBytesMax = 16 * 1024 * 1024

/** Reads one structure. Throws Malformed. `isVmsa` reports whether the contexts of a compatibility mask are VMSAs. */
export function readIgvmHeader(type: number, body: Uint8Array, padding: Uint8Array, file: HeaderFile): IgvmHeader {
  if (type >= optionalBit) return { kind: 'optional', type, body: body.slice() }
  const parameter = nameOf(IGVM_PARAMETERS, type)
  if (parameter !== null)
    return { kind: 'parameter', parameter, ...readRecord(parameter, body, IGVM_LAYOUTS.parameter) }
  const kind = nameOf(IGVM_TYPES, type)
  const what = `IGVM ${kind ?? 'header'}`
  switch (kind) {
    case 'supportedPlatform':
      return { kind, ...readRecord(what, body, IGVM_LAYOUTS.supportedPlatform) }
    case 'guestPolicy': {
      const { reserved, ...fields } = readRecord(what, body, IGVM_LAYOUTS.guestPolicy)
      reservedZero(what, reserved)
      return { kind, ...fields }
    }
    default:
      return readDirective(kind, type, body, padding, file)
  }
}

type HeaderFile = { readonly take: TakeData; readonly isVmsa: (mask: number) => boolean }

function readDirective(
  kind: Exclude<keyof typeof IGVM_TYPES, 'supportedPlatform' | 'guestPolicy'> | null,
  type: number,
  body: Uint8Array,
  padding: Uint8Array,
  file: HeaderFile,
): IgvmHeader {
  const what = `IGVM ${kind}`
  switch (kind) {
    case 'parameterArea': {
      const { sizeBytes, index, fileOffset } = readRecord(what, body, IGVM_LAYOUTS.parameterArea)
      const isFit = sizeBytes > 0n && sizeBytes <= parameterAreaBytesMax && Number(sizeBytes) % pageBytes === 0
      wellFormed(isFit, `${what}: ${sizeBytes} bytes`)
      return { kind, index, sizeBytes: Number(sizeBytes), data: file.take(fileOffset, Number(sizeBytes)) }
    }
    case 'pageData': {
      const fields = readRecord(what, body, IGVM_LAYOUTS.pageData)
      const { gpa, compatibilityMask, fileOffset, flags } = fields
      reservedZero(what, fields.reserved)
      wellFormed((flags & ~(unmeasuredFlag | sharedFlag)) === 0, `${what}: flags 0x${flags.toString(16)}`)
      const dataType = nameOf(PAGE_DATA_TYPES, fields.dataType)
      wellFormed(dataType !== null, `${what}: data type ${fields.dataType}`)
      wholePages(what, gpa)
      const isUnmeasured = (flags & unmeasuredFlag) !== 0
      const isShared = (flags & sharedFlag) !== 0
      // SEV-SNP keeps pages of the other types private, because the firmware fills them.
      wellFormed(!isShared || dataType === 'normal', `${what}: a shared page of type ${dataType}`)
      const data = file.take(fileOffset, pageBytes)
      return { kind, gpa, compatibilityMask, isUnmeasured, isShared, dataType, data }
    }
    case 'parameterInsert': {
      const fields = readRecord(what, body, IGVM_LAYOUTS.parameterInsert)
      wholePages(what, fields.gpa)
      return { kind, ...fields }
    }
    case 'vpContext': {
      const { reserved, fileOffset, ...fields } = readRecord(what, body, IGVM_LAYOUTS.vpContext)
      reservedZero(what, reserved)
      wholePages(what, fields.gpa)
      const state = file.isVmsa(fields.compatibilityMask) ? file.take(fileOffset, pageBytes) : null
      wellFormed(state !== null || !file.isVmsa(fields.compatibilityMask), `${what}: no state`)
      return { kind, ...fields, state, padding: padding.slice() }
    }
    case 'requiredMemory': {
      const { reserved, flags, ...fields } = readRecord(what, body, IGVM_LAYOUTS.requiredMemory)
      reservedZero(what, reserved | (flags & ~vtl2ProtectableFlag))
      wholePages(what, fields.gpa, fields.sizeBytes)
      return { kind, ...fields, isVtl2Protectable: flags !== 0 }
    }
    case 'snpIdBlock': {
      const fields = readRecord(what, body, IGVM_LAYOUTS.snpIdBlock)
      const { reserved, idKeyReserved, authorKeyReserved, ...rest } = fields
      reservedZero(what, idKeyReserved | authorKeyReserved | reserved.reduce((or, byte) => or | byte, 0))
      wellFormed(rest.authorKeyEnabled <= 1, `${what}: author key enabled ${rest.authorKeyEnabled}`)
      return { kind, ...rest }
    }
    case 'errorRange': {
      const fields = readRecord(what, body, IGVM_LAYOUTS.errorRange)
      wholePages(what, fields.gpa, fields.sizeBytes)
      return { kind, ...fields }
    }
    case null:
      // A loader must reject a file with an unsupported type that lacks the optional bit.
      throw new Malformed(`IGVM header: unknown type 0x${type.toString(16)}`)
  }
}

/** Stores a header's data and returns its file offset; 0 without data. */
type PutData = (data: Uint8Array | null) => number

/** Returns type and body of a header. Throws Malformed for headers whose data this library does not read. */
export function writeIgvmHeader(header: IgvmHeader, put: PutData): { type: number; body: Uint8Array } {
  const { kind } = header
  const what = `IGVM ${kind}`
  if (kind === 'optional') throw new Malformed(`${what}: its data is not known and cannot be written`)
  if (kind === 'parameter')
    return { type: IGVM_PARAMETERS[header.parameter], body: writeRecord(what, IGVM_LAYOUTS.parameter, header) }
  return { type: IGVM_TYPES[kind], body: bodyOf(what, header, put) }
}

function bodyOf(
  what: string,
  header: Exclude<IgvmHeader, { kind: 'optional' | 'parameter' }>,
  put: PutData,
): Uint8Array {
  switch (header.kind) {
    case 'supportedPlatform':
      return writeRecord(what, IGVM_LAYOUTS.supportedPlatform, header)
    case 'guestPolicy':
      return writeRecord(what, IGVM_LAYOUTS.guestPolicy, { ...header, reserved: 0 })
    case 'parameterArea': {
      const { sizeBytes, data } = header
      wellFormed(data === null || data.length === sizeBytes, `${what}: length of its data`)
      return writeRecord(what, IGVM_LAYOUTS.parameterArea, {
        ...header,
        sizeBytes: BigInt(sizeBytes),
        fileOffset: put(data),
      })
    }
    case 'pageData': {
      wellFormed(header.data === null || header.data.length === pageBytes, `${what}: not one page`)
      const flags = (header.isUnmeasured ? unmeasuredFlag : 0) | (header.isShared ? sharedFlag : 0)
      const dataType = PAGE_DATA_TYPES[header.dataType]
      const fields = { ...header, flags, dataType, fileOffset: put(header.data), reserved: 0 }
      return writeRecord(what, IGVM_LAYOUTS.pageData, fields)
    }
    case 'parameterInsert':
      return writeRecord(what, IGVM_LAYOUTS.parameterInsert, header)
    case 'vpContext':
      wellFormed(header.state?.length === pageBytes, `${what}: no VMSA of one page`)
      return writeRecord(what, IGVM_LAYOUTS.vpContext, { ...header, fileOffset: put(header.state), reserved: 0 })
    case 'requiredMemory': {
      const flags = header.isVtl2Protectable ? vtl2ProtectableFlag : 0
      return writeRecord(what, IGVM_LAYOUTS.requiredMemory, { ...header, flags, reserved: 0 })
    }
    case 'snpIdBlock':
      return writeRecord(what, IGVM_LAYOUTS.snpIdBlock, {
        ...header,
        reserved: new Uint8Array(3),
        idKeyReserved: 0,
        authorKeyReserved: 0,
      })
    case 'errorRange':
      return writeRecord(what, IGVM_LAYOUTS.errorRange, header)
  }
}

/** Returns the section of a type: 0 platform, 1 initialization, 2 directive. Null if it belongs to none. */
export function igvmSection(type: number): 0 | 1 | 2 | null {
  const plain = type >= optionalBit ? type - optionalBit : type
  if (plain >= 0x001 && plain <= 0x100) return 0
  if (plain >= 0x101 && plain <= 0x200) return 1
  return plain >= 0x301 && plain <= 0x400 ? 2 : null
}

function nameOf<T extends Record<string, number>>(table: T, value: number): (keyof T & string) | null {
  return Object.keys(table).find(name => table[name] === value) ?? null
}

function reservedZero(what: string, reserved: number): void {
  wellFormed(reserved === 0, `${what}: a reserved field is not zero`)
}

function wholePages(what: string, gpa: bigint, sizeBytes = 0): void {
  wellFormed(gpa % BigInt(pageBytes) === 0n && sizeBytes % pageBytes === 0, `${what}: not in whole pages`)
}
