// Whether the content of a value can change. Pure.

import ts from '@typescript/typescript6'
import { all, calleeOf, isAssigned, isMade, isSet, words } from './syntax.ts'

/** Classes of the platform whose values have contents that change. */
export const containers = words(`
  Map Set WeakMap WeakSet WeakRef Array Object ArrayBuffer SharedArrayBuffer DataView Int8Array Uint8Array
  Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array Float32Array Float64Array BigInt64Array
  BigUint64Array`)

/** Calls whose result is a new value with contents that change. */
export const makers = words(`
  Array Array.from Array.of Object.create Object.fromEntries Object.assign Buffer.alloc Buffer.allocUnsafe Buffer.from
  Buffer.concat Uint8Array.from Uint8Array.fromHex Uint8Array.fromBase64 Map.groupBy Object.groupBy structuredClone
  Promise.withResolvers`)

/** Classes of the platform whose values keep nothing that a request brings. */
export const harmless = words('TextEncoder TextDecoder URL RegExp Date Error Intl.DateTimeFormat Intl.NumberFormat')

export const mutableTypes = new Set([...containers, 'Record', 'Buffer'])

/** Methods that change a container. */
export const mutators = words(`
  set add delete clear push pop shift unshift splice fill sort reverse copyWithin getOrInsert getOrInsertComputed
  write writeUInt8 writeUInt16BE writeUInt32BE writeUInt16LE writeUInt32LE writeBigUInt64BE writeBigUInt64LE`)

/** Methods that arrays have and services of this project do not. */
export const arrayMutators = words('push pop shift unshift splice fill copyWithin')

export type Classes = {
  readonly declared: ReadonlySet<string>
  readonly stateful: ReadonlySet<string>
  /** Functions that return a new container. */
  readonly factories: ReadonlySet<string>
}

export type Holder = {
  readonly type: ts.TypeNode | undefined
  readonly values: readonly ts.Expression[]
  readonly uses: readonly ts.Node[]
  readonly isField: boolean
}

/** A value whose content can change. A table that is written down and only read is a constant. */
export function isKeptValue({ type, values, uses, isField }: Holder, classes: Classes): boolean {
  if (isField && isMutable(type)) return true
  if (uses.some(use => isChange(use, isMutable(type) || values.some(value => isFresh(value, classes))))) return true
  if (isReadonly(type)) return false
  return values.some(value => canFill(value, uses, classes))
}

/** A new value that this file has filled, can fill, or passes to others that can. */
export function canFill(given: ts.Expression, uses: readonly ts.Node[], classes: Classes): boolean {
  const value = unwrapped(given)
  if (ts.isConditionalExpression(value))
    return [value.whenTrue, value.whenFalse].some(part => canFill(part, uses, classes))
  if (ts.isBinaryExpression(value)) return [value.left, value.right].some(part => canFill(part, uses, classes))
  if (isConstant(value)) return false
  if (isFrozen(value)) return value.arguments.some(part => isFreshInside(part, uses, classes))
  if (ts.isObjectLiteralExpression(value))
    return value.properties.length === 0 || hasInside(value, uses, classes) || hasSetProperty(value)
  if (!isFresh(value, classes)) return false
  const isTable =
    ts.isNewExpression(value) && words('Map Set').has(calleeOf(value)) && (value.arguments?.length ?? 0) > 0
  const isList = ts.isArrayLiteralExpression(value) && value.elements.length > 0
  if (isList && value.elements.some(part => !ts.isArrayLiteralExpression(part) && canFill(part, uses, classes)))
    return true
  return !(isTable || isList || makesIndex(value)) || uses.some(isPassedOn)
}

export const isFrozen = (value: ts.Expression): value is ts.CallExpression =>
  ts.isCallExpression(value) && calleeOf(value) === 'Object.freeze'

/** A frozen list or object is as constant as its parts; a frozen map is not frozen at all. */
export function isFreshInside(part: ts.Expression, uses: readonly ts.Node[], classes: Classes): boolean {
  if (ts.isObjectLiteralExpression(part)) return hasInside(part, uses, classes)
  const parts = ts.isArrayLiteralExpression(part) ? part.elements : [part]
  return parts.some(given => canFill(given, uses, classes))
}

/** A property whose own value can be filled. */
export function hasInside(value: ts.Expression, uses: readonly ts.Node[], classes: Classes): boolean {
  const parts = ts.isObjectLiteralExpression(value) ? value.properties.filter(ts.isPropertyAssignment) : []
  return parts.some(({ initializer }) => canFill(initializer, uses, classes))
}

/** This file sets a property with the name of one of these, on this object or another. */
export function hasSetProperty(value: ts.ObjectLiteralExpression): boolean {
  const names = new Set(value.properties.flatMap(({ name }) => name?.getText() ?? []))
  return setProperties(value.getSourceFile()).has(names)
}

export const setByFile = new WeakMap<ts.SourceFile, ReadonlySet<string>>()

export function setProperties(file: ts.SourceFile): { readonly has: (names: ReadonlySet<string>) => boolean } {
  const made = setByFile.get(file) ?? new Set(all(file, ts.isPropertyAccessExpression).filter(isSet).map(nameOf))
  setByFile.set(file, made)
  return { has: names => [...names].some(name => made.has(name)) }
}

export const nameOf = ({ name }: ts.PropertyAccessExpression) => name.text

export const makesIndex = (value: ts.Expression) =>
  ts.isCallExpression(value) && words('Object.fromEntries Map.groupBy Object.groupBy Buffer.from').has(calleeOf(value))

export function isFresh(given: ts.Expression, classes: Classes): boolean {
  const value = unwrapped(given)
  if (ts.isArrayLiteralExpression(value) || ts.isObjectLiteralExpression(value)) return true
  if (isFrozen(value)) return value.arguments.some(part => isFresh(part, classes))
  if (ts.isCallExpression(value))
    return makers.has(calleeOf(value)) || classes.factories.has(calleeOf(value)) || isFilled(value) || isDrawn(value)
  if (!ts.isNewExpression(value)) return false
  const callee = calleeOf(value)
  return classes.declared.has(callee) ? classes.stateful.has(callee) : !harmless.has(callee)
}

/** Random bytes, and what is made of them: when it is drawn once and used later it is a secret, or names one. */
export function isDrawn({ expression, arguments: given }: ts.CallExpression): boolean {
  const name = ts.isPropertyAccessExpression(expression) ? expression.name.text : expression.getText()
  if (drawing.has(name)) return true
  return given.some(value => drawing.has(value.getText()) || (ts.isCallExpression(value) && isDrawn(value)))
}

export const drawing = words('random #random randomBytes deps.random this.#random newKey')

/** `new Array(n).fill(x)` and the like. */
export function isFilled({ expression }: ts.CallExpression): boolean {
  return ts.isPropertyAccessExpression(expression) && isMade(expression.expression) && expression.name.text === 'fill'
}

/** Text, numbers, and tables of them. */
export function isConstant(given: ts.Expression): boolean {
  const value = unwrapped(given)
  if (ts.isAsExpression(given) && given.type.getText() === 'const') return true
  if (ts.isArrayLiteralExpression(value)) return value.elements.length > 0 && value.elements.every(isConstant)
  if (ts.isObjectLiteralExpression(value))
    return (
      value.properties.length > 0 &&
      value.properties.every(part => ts.isPropertyAssignment(part) && isConstant(part.initializer))
    )
  return (
    ts.isLiteralExpression(value) || ts.isPrefixUnaryExpression(value) || words('true false null').has(value.getText())
  )
}

export function unwrapped(value: ts.Expression): ts.Expression {
  const isWrapped =
    ts.isAsExpression(value) ||
    ts.isSatisfiesExpression(value) ||
    ts.isParenthesizedExpression(value) ||
    ts.isNonNullExpression(value) ||
    ts.isAwaitExpression(value)
  return isWrapped ? unwrapped(value.expression) : value
}

export function isReadonly(type: ts.TypeNode | undefined): boolean {
  if (type === undefined) return false
  if (ts.isUnionTypeNode(type)) return type.types.every(isReadonly)
  if (ts.isTypeOperatorNode(type)) return type.operator === ts.SyntaxKind.ReadonlyKeyword
  return ts.isTypeReferenceNode(type) && /^(?:Readonly|Headers$)/.test(type.typeName.getText())
}

export function isMutable(type: ts.TypeNode | undefined): boolean {
  if (type === undefined) return false
  if (ts.isUnionTypeNode(type)) return type.types.some(isMutable)
  return ts.isArrayTypeNode(type) || (ts.isTypeReferenceNode(type) && mutableTypes.has(type.typeName.getText()))
}

/** The value that this expression names gets other contents: `x.a = 1`, `x[0]++`, `x.list.push(1)`, `delete x.a`. */
export function isChange(use: ts.Node, isContainer: boolean): boolean {
  let at = use
  for (;;) {
    const { parent } = at
    if (ts.isPropertyAccessExpression(parent) && parent.expression === at) {
      const isCalled = ts.isCallExpression(parent.parent) && parent.parent.expression === parent
      if (isCalled && (isContainer ? mutators : arrayMutators).has(parent.name.text)) return true
      if (isCalled) return false
      at = parent
    } else if (ts.isElementAccessExpression(parent) && parent.expression === at) at = parent
    else if (ts.isNonNullExpression(parent) || ts.isParenthesizedExpression(parent) || ts.isAsExpression(parent))
      at = parent
    else return (at !== use && (isSet(at) || ts.isDeleteExpression(parent))) || isAssigned(at)
  }
}

/** The value itself goes to a function, a property or another variable, which may fill it. */
export function isPassedOn(use: ts.Node): boolean {
  const { parent } = use
  if (ts.isCallExpression(parent) || ts.isNewExpression(parent))
    return parent.expression !== use && !harmlessCalls.has(calleeOf(parent))
  if (ts.isShorthandPropertyAssignment(parent)) return true
  const isValue = ts.isVariableDeclaration(parent) || ts.isPropertyAssignment(parent)
  return isValue && parent.initializer === use
}

export const harmlessCalls = words(`
  Set Map Object.keys Object.values Object.entries Array.from JSON.stringify Math.max Math.min Promise.all
  Promise.race Buffer.concat Bun.hash String`)
