// Goal: the layout of each header of an IGVM file, written out as igvm_defs has it: a field that
// moves or goes fails.

import { expect, test } from 'bun:test'
import { IGVM_LAYOUTS, IGVM_PLATFORMS } from '../../../src/attest/igvm/headers.ts'

const shown = (layout: object) =>
  Object.entries(layout)
    .map(([name, [offset, sizeBytes]]) => `${name} ${offset}+${sizeBytes}`)
    .join(', ')

test('goal: the fields of each structure, with offset and size', () => {
  expect(Object.entries(IGVM_LAYOUTS).map(([name, layout]) => `${name}: ${shown(layout)}`)).toEqual([
    'supportedPlatform: compatibilityMask 0+4, highestVtl 4+1, platform 5+1, platformVersion 6+2, ' +
      'sharedGpaBoundary 8+8',
    'guestPolicy: policy 0+8, compatibilityMask 8+4, reserved 12+4',
    'parameterArea: sizeBytes 0+8, index 8+4, fileOffset 12+4',
    'pageData: gpa 0+8, compatibilityMask 8+4, fileOffset 12+4, flags 16+4, dataType 20+2, reserved 22+2',
    'parameterInsert: gpa 0+8, compatibilityMask 8+4, index 12+4',
    'parameter: index 0+4, byteOffset 4+4',
    'vpContext: gpa 0+8, compatibilityMask 8+4, fileOffset 12+4, vpIndex 16+2, reserved 18+2',
    'requiredMemory: gpa 0+8, compatibilityMask 8+4, sizeBytes 12+4, flags 16+4, reserved 20+4',
    'snpIdBlock: compatibilityMask 0+4, authorKeyEnabled 4+1, reserved 5+3, measurement 8+48, familyId 56+16, ' +
      'imageId 72+16, version 88+4, guestSvn 92+4, idKeyAlgorithm 96+4, authorKeyAlgorithm 100+4, ' +
      'idSignature 104+144, idKeyCurve 248+4, idKeyReserved 252+4, idKeyPoint 256+144, authorSignature 400+144, ' +
      'authorKeyCurve 544+4, authorKeyReserved 548+4, authorKeyPoint 552+144',
    'errorRange: gpa 0+8, compatibilityMask 8+4, sizeBytes 12+4',
  ])
})

test('goal: the number of each platform', () => {
  expect(IGVM_PLATFORMS).toEqual({ native: 0, vsmIsolation: 1, sevSnp: 2, tdx: 3, sev: 4, sevEs: 5 })
})
