// Everything that the transparency log serves: paths of C2SP tlog-tiles below /log, a proof for one entry, and the
// documentation of both for the OpenAPI documents of the services that serve it. Pure.

import type { ApiOperation } from '../http/openapi.ts'
import { parameter } from '../http/openapi.ts'
import type { Operation } from '../http/operations.ts'

const read = <const Path extends string>(path: Path) =>
  ({ method: 'GET', path: `/log/${path}`, isPublic: true }) as const

/** A tile's place has up to three parts: `x012/345`, and `.p/` with a width. */
export const LOG_OPERATIONS = {
  logCheckpoint: read('checkpoint'),
  logTile: read('tile/{level}/{a}'),
  logLaterTile: read('tile/{level}/{a}/{b}'),
  logLaterPartialTile: read('tile/{level}/{a}/{b}/{c}'),
  logProof: read('proof/{leaf}'),
  logKey: read('key'),
} as const satisfies Record<string, Operation>

export type LogOperation = keyof typeof LOG_OPERATIONS

export const LOG_PARAMETERS = {
  Level: parameter('path', 'level', 'Level of the tile, or `entries` for a bundle of entries.', {
    type: 'string',
    pattern: '^([0-6]|entries)$',
  }),
  PlaceA: parameter('path', 'a', "First part of the tile's index, such as `067`, `067.p` or `x001`."),
  PlaceB: parameter('path', 'b', 'Its second part, or the width after `.p/`.'),
  PlaceC: parameter('path', 'c', 'The width after `.p/`.'),
  Leaf: parameter('path', 'leaf', 'SHA-256 of the entry as a leaf (RFC 6962 2.1), in hexadecimal.', {
    type: 'string',
    pattern: '^[0-9a-f]{64}$',
  }),
} as const

const FAILURES = ['NotFound', 'MethodNotAllowed', 'RateLimited', 'InternalError'] as const
/** A log that could not begin. */
const UNBEGUN = [...FAILURES, 'Unavailable'] as const
type Document = ApiOperation<keyof typeof LOG_PARAMETERS, 'RequestId', (typeof UNBEGUN)[number]>

const headers = { 'X-Request-ID': 'RequestId' } as const
const text = (description: string): Document['success'] => ({
  status: 200,
  description,
  headers,
  content: { 'text/plain': { schema: { type: 'string' } } },
})
const tile: Document['success'] = {
  status: 200,
  description: 'The tile, which never changes.',
  headers,
  content: { 'application/octet-stream': { schema: { type: 'string', contentMediaType: 'application/octet-stream' } } },
}
const tileWords =
  'A tile of the log (C2SP tlog-tiles): up to 256 hashes of 32 bytes, or up to 256 entries with a length of two bytes before each.'

export const LOG_DOCUMENTS: Readonly<Record<LogOperation, Document>> = {
  logCheckpoint: {
    summary: 'Checkpoint of the transparency log',
    description:
      'A signed note (C2SP tlog-checkpoint) with the cosignatures of witnesses (C2SP tlog-cosignature). With witnesses it is of the newest tree that one of them has cosigned.',
    success: text('The signed note.'),
    failures: UNBEGUN,
  },
  logTile: {
    summary: 'Tile of the log',
    description: tileWords,
    parameters: ['Level', 'PlaceA'],
    success: tile,
    failures: FAILURES,
  },
  logLaterTile: {
    summary: 'Tile of the log, its index in two parts or with its width',
    description: tileWords,
    parameters: ['Level', 'PlaceA', 'PlaceB'],
    success: tile,
    failures: FAILURES,
  },
  logLaterPartialTile: {
    summary: 'Tile of the log, its index in two parts, with its width',
    description: tileWords,
    parameters: ['Level', 'PlaceA', 'PlaceB', 'PlaceC'],
    success: tile,
    failures: FAILURES,
  },
  logProof: {
    summary: 'Proof that an entry is in the log',
    description: 'Index, hashes and checkpoint (C2SP tlog-proof). 404: the tree of the checkpoint does not have it.',
    parameters: ['Leaf'],
    success: text('The proof.'),
    failures: FAILURES,
  },
  logKey: {
    summary: 'Key of the log',
    description:
      'As `NAME+ID+KEY` (C2SP signed-note). A client that pins it takes it from the operator by another way.',
    success: text('The key.'),
    failures: UNBEGUN,
  },
}
