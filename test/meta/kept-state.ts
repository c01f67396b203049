// State that the gateway's VM keeps between two requests, as its source creates it, and the register of it in
// src/KEPT_STATE.md. Pure.
//
// A site is a place in the source that can still hold something after the call that put it there:
// - a field of a class, unless it is readonly and its value cannot change inside either;
// - a `let` of a module, and a constant of a module whose content can change;
// - a `let`, a parameter that is set again, or a constant whose content can change, which a function uses that
//   outlives the call around it: one that is returned, passed on, or kept as a property;
// - such a variable of a generator, or one that an endless loop uses and that is declared outside the loop;
// - a property that is set on a module's variable or a global, such as `keep.last = text`;
// - a call that writes a file or opens a database.
// The rules look at names and at no order of statements. What they cannot see is a service of another package that
// keeps things, and what a function does to a parameter whose type is not that of a container.

import ts from '@typescript/typescript6'
import { type Binding, bind, isFunction } from './bindings.ts'
import type { Tree } from './tree.ts'

export type Site = {
  readonly path: string
  /** `Class.field`, `function.variable` or `variable`. */
  readonly name: string
}

const words = (text: string): ReadonlySet<string> => new Set(text.trim().split(/\s+/))

/** Classes of the platform whose values have contents that change. */
const containers = words(`
  Map Set WeakMap WeakSet WeakRef Array Object ArrayBuffer SharedArrayBuffer DataView Int8Array Uint8Array
  Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array Float32Array Float64Array BigInt64Array
  BigUint64Array`)

/** Calls whose result is a new value with contents that change. */
const makers = words(`
  Array Array.from Array.of Object.create Object.fromEntries Object.assign Buffer.alloc Buffer.allocUnsafe Buffer.from
  Buffer.concat Uint8Array.from Uint8Array.fromHex Uint8Array.fromBase64 Map.groupBy Object.groupBy structuredClone
  Promise.withResolvers`)

/** Classes of the platform whose values keep nothing that a request brings. */
const harmless = words('TextEncoder TextDecoder URL RegExp Date Error Intl.DateTimeFormat Intl.NumberFormat')

const mutableTypes = new Set([...containers, 'Record', 'Buffer'])

/** Methods that change a container. */
const mutators = words(`
  set add delete clear push pop shift unshift splice fill sort reverse copyWithin getOrInsert getOrInsertComputed
  write writeUInt8 writeUInt16BE writeUInt32BE writeUInt16LE writeUInt32LE writeBigUInt64BE writeBigUInt64LE`)

/** Methods that arrays have and services of this project do not. */
const arrayMutators = words('push pop shift unshift splice fill copyWithin')

/** Calls that keep something in a file or a database. */
const writers = words('Database Bun.write writeFileSync writeFileAtomic appendFileSync createWriteStream')

/** Sites of these files. Each use of a container that `src/base` defines is a site, too: its content is the user's. */
export function findKeptState(tree: Tree): readonly Site[] {
  const files = [...tree].map(([path, text]) => {
    const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true)
    return { source, bindings: bind(source) }
  })
  const classes = files.flatMap(({ source }) => all(source, ts.isClassLike))
  const declared = new Set(classes.flatMap(({ name }) => name?.text ?? []))
  const factories = new Set(files.flatMap(({ source }) => factoriesOf(source)))
  const stateful = statefulClasses(classes, { declared, factories })
  const own = files.flatMap(({ source, bindings }) => sitesOf(source, bindings, { declared, stateful, factories }))
  const base = files.filter(({ source }) => source.fileName.startsWith('src/base/'))
  const named = new Set(base.flatMap(({ bindings }) => bindings.filter(isOfModule).map(({ name }) => name)))
  const ofBase = own.flatMap(({ path, name }) => (path.startsWith('src/base/') ? (name.split('.')[0] ?? '') : []))
  const uses = files.flatMap(({ source }) => usesOf(source, new Set(ofBase.filter(name => named.has(name)))))
  const byKey = new Map([...own, ...uses].map(site => [`${site.path} ${site.name}`, site]))
  return [...byKey.values()]
}

const isOfModule = ({ scope }: Binding) => ts.isSourceFile(scope)

type Classes = {
  readonly declared: ReadonlySet<string>
  readonly stateful: ReadonlySet<string>
  /** Functions that return a new container. */
  readonly factories: ReadonlySet<string>
}

function factoriesOf(file: ts.SourceFile): string[] {
  const returned = [
    ...all(file, ts.isReturnStatement).flatMap(({ expression }) => expression ?? []),
    ...all(file, ts.isArrowFunction).flatMap(({ body }) => (ts.isBlock(body) ? [] : body)),
  ]
  return returned.flatMap(value => {
    const made = unwrapped(value)
    const isNew = ts.isNewExpression(made) && containers.has(calleeOf(made)) && (made.arguments?.length ?? 0) === 0
    return isNew ? (functionName(made) ?? []) : []
  })
}

/** Names of the classes with a field that is a site, or whose parent has one, until no more are found. */
function statefulClasses(classes: readonly ts.ClassLikeDeclaration[], others: Omit<Classes, 'stateful'>) {
  const stateful = new Set<string>()
  for (let before = -1; before !== stateful.size; ) {
    before = stateful.size
    for (const one of classes) {
      const parents = (one.heritageClauses ?? []).flatMap(({ types }) => types.map(type => type.expression.getText()))
      const isStateful =
        parents.some(parent => stateful.has(parent) || containers.has(parent)) ||
        keptFields(one, { ...others, stateful }).length > 0
      if (isStateful && one.name !== undefined) stateful.add(one.name.text)
    }
  }
  return stateful
}

function sitesOf(file: ts.SourceFile, bindings: readonly Binding[], classes: Classes): Site[] {
  const site = (...names: readonly (string | null)[]): Site => ({
    path: file.fileName,
    name: names.filter(name => name !== null).join('.'),
  })
  const fields = all(file, ts.isClassLike).flatMap(one =>
    keptFields(one, classes).map(name => site(one.name?.text ?? functionName(one), name)),
  )
  const variables = bindings
    .filter(binding => isKeptVariable(binding, classes))
    .map(binding => site(functionAround(binding.node) === null ? null : functionName(binding.scope), binding.name))
  const properties = changedNames(file, bindings).map(name => site(name))
  const written = all(file, isMade)
    .filter(made => writers.has(calleeOf(made)))
    .map(made => site(functionName(made), calleeOf(made)))
  const ofThis = changedOfThis(file).map(([owner, name]) => site(functionName(owner), name))
  const given = all(file, isMade)
    .filter(
      made => functionAround(made) === null && isMade(made.parent) && isFresh(made, classes) && !made.arguments?.length,
    )
    .map(made => site(holderOf(made)))
  return [...fields, ...variables, ...properties, ...written, ...ofThis, ...given]
}

/** Names of the fields that can keep something: declared, of the constructor's parameters, or set without either. */
function keptFields(one: ts.ClassLikeDeclaration, classes: Classes): readonly string[] {
  const declared = one.members.filter(ts.isPropertyDeclaration)
  const builders = one.members.filter(ts.isConstructorDeclaration)
  const ofParameters = builders.flatMap(({ parameters }) => parameters.filter(isParameterProperty))
  const set = all(one, ts.isBinaryExpression).filter(isAssignment)
  const changed = all(one, isThis).flatMap(node => {
    const { parent } = outerOf(node)
    const isOutside = !ts.isConstructorDeclaration(functionAround(node, true) ?? node)
    return ts.isPropertyAccessExpression(parent) && isSet(parent) && isOutside ? [parent.name.text] : []
  })
  const kept = [...declared, ...ofParameters].filter(field => {
    if (hasModifier(field, ts.SyntaxKind.DeclareKeyword) || hasModifier(field, ts.SyntaxKind.AbstractKeyword))
      return false
    if (!hasModifier(field, ts.SyntaxKind.ReadonlyKeyword)) return true
    const name = field.name.getText()
    const values = [
      ...(field.initializer === undefined ? [] : [field.initializer]),
      ...set.filter(({ left }) => thisProperty(left) === name).map(({ right }) => right),
    ]
    const uses = all(one, ts.isPropertyAccessExpression).filter(node => thisProperty(node) === name)
    return isKeptValue({ type: field.type, values, uses, isField: true }, classes)
  })
  return [...new Set([...kept.map(field => field.name.getText()), ...changed])]
}

const isThis = (node: ts.Node): node is ts.ThisExpression => node.kind === ts.SyntaxKind.ThisKeyword

/** With the parentheses and types around it. */
function outerOf(node: ts.Node): ts.Node {
  const { parent } = node
  return ts.isParenthesizedExpression(parent) || ts.isAsExpression(parent) ? outerOf(parent) : node
}

/** `function.x` for `this.x = text` in a function that is in no class. */
function changedOfThis(file: ts.SourceFile): readonly (readonly [ts.Node, string])[] {
  return all(file, isThis).flatMap(node => {
    const { parent } = outerOf(node)
    const owner = functionAround(node, true)
    const isInClass = owner !== null && ts.isClassLike(owner.parent)
    return ts.isPropertyAccessExpression(parent) && isChange(outerOf(node), true) && owner !== null && !isInClass
      ? [[owner, parent.name.text]]
      : []
  })
}

function isParameterProperty(node: ts.ParameterDeclaration): boolean {
  return (ts.getModifiers(node) ?? []).some(({ kind }) => kind !== ts.SyntaxKind.OverrideKeyword)
}

/** `x` of `this.x`; null for another expression. */
function thisProperty(node: ts.Node): string | null {
  const isOfThis = ts.isPropertyAccessExpression(node) && node.expression.kind === ts.SyntaxKind.ThisKeyword
  return isOfThis ? node.name.text : null
}

function isKeptVariable({ node, kind, uses }: Binding, classes: Classes): boolean {
  if (kind === 'other') return false
  const isModule = functionAround(node) === null
  const owner = functionAround(node)
  if (owner !== null && !uses.some(use => isCapturedBeyond(use, owner) || isInEndless(use, node, owner))) return false
  if (kind === 'let') return isModule || owner !== null
  if (kind === 'parameter' && uses.some(isSet)) return true
  const values = [node.initializer ?? [], literalOf(node)].flat()
  const type = ts.isBindingElement(node) ? undefined : node.type
  if (kind === 'parameter' && values.length === 0) return uses.some(use => isChange(use, isMutable(type)))
  return isKeptValue({ type, values, uses, isField: false }, classes)
}

/** What a pattern takes apart, where it is written down right there. */
function literalOf(node: ts.Node): readonly ts.Expression[] {
  if (ts.isBindingElement(node) || ts.isBindingName(node)) return literalOf(node.parent)
  const value = ts.isVariableDeclaration(node) ? node.initializer : undefined
  const isLiteral = value !== undefined && (ts.isArrayLiteralExpression(value) || ts.isObjectLiteralExpression(value))
  return isLiteral ? [value] : []
}

type Holder = {
  readonly type: ts.TypeNode | undefined
  readonly values: readonly ts.Expression[]
  readonly uses: readonly ts.Node[]
  readonly isField: boolean
}

/** A value whose content can change. A table that is written down and only read is a constant. */
function isKeptValue({ type, values, uses, isField }: Holder, classes: Classes): boolean {
  if (isField && isMutable(type)) return true
  if (uses.some(use => isChange(use, isMutable(type) || values.some(value => isFresh(value, classes))))) return true
  if (isReadonly(type)) return false
  return values.some(value => canFill(value, uses, classes))
}

/** A new value that this file has filled, can fill, or passes to others that can. */
function canFill(given: ts.Expression, uses: readonly ts.Node[], classes: Classes): boolean {
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

const isFrozen = (value: ts.Expression): value is ts.CallExpression =>
  ts.isCallExpression(value) && calleeOf(value) === 'Object.freeze'

/** A frozen list or object is as constant as its parts; a frozen map is not frozen at all. */
function isFreshInside(part: ts.Expression, uses: readonly ts.Node[], classes: Classes): boolean {
  if (ts.isObjectLiteralExpression(part)) return hasInside(part, uses, classes)
  const parts = ts.isArrayLiteralExpression(part) ? part.elements : [part]
  return parts.some(one => canFill(one, uses, classes))
}

/** A property whose own value can be filled. */
function hasInside(value: ts.Expression, uses: readonly ts.Node[], classes: Classes): boolean {
  const parts = ts.isObjectLiteralExpression(value) ? value.properties.filter(ts.isPropertyAssignment) : []
  return parts.some(({ initializer }) => canFill(initializer, uses, classes))
}

/** This file sets a property with the name of one of these, on this object or another. */
function hasSetProperty(value: ts.ObjectLiteralExpression): boolean {
  const names = new Set(value.properties.flatMap(({ name }) => name?.getText() ?? []))
  return setProperties(value.getSourceFile()).has(names)
}

const setByFile = new WeakMap<ts.SourceFile, ReadonlySet<string>>()

function setProperties(file: ts.SourceFile): { readonly has: (names: ReadonlySet<string>) => boolean } {
  const made = setByFile.get(file) ?? new Set(all(file, ts.isPropertyAccessExpression).filter(isSet).map(nameOf))
  setByFile.set(file, made)
  return { has: names => [...names].some(name => made.has(name)) }
}

const nameOf = ({ name }: ts.PropertyAccessExpression) => name.text

const makesIndex = (value: ts.Expression) =>
  ts.isCallExpression(value) && words('Object.fromEntries Map.groupBy Object.groupBy Buffer.from').has(calleeOf(value))

function isFresh(given: ts.Expression, classes: Classes): boolean {
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
function isDrawn({ expression, arguments: given }: ts.CallExpression): boolean {
  const name = ts.isPropertyAccessExpression(expression) ? expression.name.text : expression.getText()
  if (drawing.has(name)) return true
  return given.some(value => drawing.has(value.getText()) || (ts.isCallExpression(value) && isDrawn(value)))
}

const drawing = words('random #random randomBytes deps.random this.#random newKey')

/** `new Array(n).fill(x)` and the like. */
function isFilled({ expression }: ts.CallExpression): boolean {
  return ts.isPropertyAccessExpression(expression) && isMade(expression.expression) && expression.name.text === 'fill'
}

/** Text, numbers, and tables of them. */
function isConstant(given: ts.Expression): boolean {
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

function unwrapped(value: ts.Expression): ts.Expression {
  const isWrapped =
    ts.isAsExpression(value) ||
    ts.isSatisfiesExpression(value) ||
    ts.isParenthesizedExpression(value) ||
    ts.isNonNullExpression(value) ||
    ts.isAwaitExpression(value)
  return isWrapped ? unwrapped(value.expression) : value
}

function isReadonly(type: ts.TypeNode | undefined): boolean {
  if (type === undefined) return false
  if (ts.isUnionTypeNode(type)) return type.types.every(isReadonly)
  if (ts.isTypeOperatorNode(type)) return type.operator === ts.SyntaxKind.ReadonlyKeyword
  return ts.isTypeReferenceNode(type) && /^(?:Readonly|Headers$)/.test(type.typeName.getText())
}

function isMutable(type: ts.TypeNode | undefined): boolean {
  if (type === undefined) return false
  if (ts.isUnionTypeNode(type)) return type.types.some(isMutable)
  return ts.isArrayTypeNode(type) || (ts.isTypeReferenceNode(type) && mutableTypes.has(type.typeName.getText()))
}

/** The value that this expression names gets other contents: `x.a = 1`, `x[0]++`, `x.list.push(1)`, `delete x.a`. */
function isChange(use: ts.Node, isContainer: boolean): boolean {
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

/** The first argument of `Object.assign` and the like. */
function isAssigned(at: ts.Node): boolean {
  const { parent } = at
  return ts.isCallExpression(parent) && assigning.has(calleeOf(parent)) && parent.arguments[0] === at
}

const assigning = words(`
  Object.assign Object.defineProperty Object.defineProperties Object.setPrototypeOf Reflect.set Reflect.defineProperty`)

/** Left of an assignment, in a pattern too, in the head of a loop, or beside `++` and `--`. */
function isSet(node: ts.Node): boolean {
  const { parent } = node
  if (ts.isBinaryExpression(parent)) return parent.left === node && isAssignment(parent)
  if (ts.isForOfStatement(parent) || ts.isForInStatement(parent)) return parent.initializer === node
  if (ts.isPropertyAssignment(parent)) return parent.initializer === node && isSet(parent.parent)
  if (ts.isShorthandPropertyAssignment(parent)) return isSet(parent.parent)
  const isPart =
    ts.isArrayLiteralExpression(parent) || ts.isSpreadElement(parent) || ts.isParenthesizedExpression(parent)
  if (isPart) return isSet(parent)
  const isCounted = ts.isPrefixUnaryExpression(parent) || ts.isPostfixUnaryExpression(parent)
  return isCounted && [ts.SyntaxKind.PlusPlusToken, ts.SyntaxKind.MinusMinusToken].includes(parent.operator)
}

function isAssignment({ operatorToken: { kind } }: ts.BinaryExpression): boolean {
  return kind >= ts.SyntaxKind.FirstAssignment && kind <= ts.SyntaxKind.LastAssignment
}

/** The value itself goes to a function, a property or another variable, which may fill it. */
function isPassedOn(use: ts.Node): boolean {
  const { parent } = use
  if (ts.isCallExpression(parent) || ts.isNewExpression(parent))
    return parent.expression !== use && !harmlessCalls.has(calleeOf(parent))
  if (ts.isShorthandPropertyAssignment(parent)) return true
  const isValue = ts.isVariableDeclaration(parent) || ts.isPropertyAssignment(parent)
  return isValue && parent.initializer === use
}

const harmlessCalls = words(`
  Set Map Object.keys Object.values Object.entries Array.from JSON.stringify Math.max Math.min Promise.all
  Promise.race Buffer.concat Bun.hash String`)

const isMade = (node: ts.Node): node is ts.CallExpression | ts.NewExpression =>
  ts.isCallExpression(node) || ts.isNewExpression(node)

/** `name` or `object.name`; empty for a longer expression. */
function calleeOf({ expression }: ts.CallExpression | ts.NewExpression): string {
  if (ts.isIdentifier(expression)) return expression.text
  if (!ts.isPropertyAccessExpression(expression) || !ts.isIdentifier(expression.expression)) return ''
  return `${expression.expression.text}.${expression.name.text}`
}

/** `keep` for `keep.last = text` where `keep` is a function, class or import of the module, or a global. */
function changedNames(file: ts.SourceFile, bindings: readonly Binding[]): readonly string[] {
  const bound = new Set<ts.Node>(bindings.flatMap(({ uses }) => uses))
  const ofModule = bindings.filter(({ kind, scope }) => kind === 'other' && scope === file).flatMap(({ uses }) => uses)
  const globals = all(file, ts.isIdentifier).filter(at => !bound.has(at) && (isRoot(at) || isAssigned(at)))
  return [...ofModule, ...globals].filter(use => isChange(use, false)).map(({ text }) => text)
}

/** The `x` of `x.a` and `x[0]`. */
const isRoot = (node: ts.Identifier) =>
  (ts.isPropertyAccessExpression(node.parent) || ts.isElementAccessExpression(node.parent)) &&
  node.parent.expression === node

/** A function that outlives the call of the owner lies between the use and the owner. */
function isCapturedBeyond(use: ts.Node, owner: ts.Node): boolean {
  for (let at = use.parent; at !== owner && at !== undefined; at = at.parent)
    if (isFunction(at) && outlives(at, owner, new Set())) return true
  return false
}

/** The use is in a generator, or in a loop without an end that began after the declaration. */
function isInEndless(use: ts.Node, declaration: ts.Node, owner: ts.Node): boolean {
  if ((owner as ts.FunctionLikeDeclaration).asteriskToken !== undefined) return true
  for (let at = use.parent; at !== owner && at !== undefined; at = at.parent) {
    const isWithin = declaration.pos >= at.pos && declaration.end <= at.end
    if (isEndless(at) && !isWithin) return true
  }
  return false
}

function isEndless(node: ts.Node): boolean {
  if (ts.isForOfStatement(node)) return node.awaitModifier !== undefined
  if (ts.isForStatement(node)) return node.condition === undefined
  const isWhile = ts.isWhileStatement(node) || ts.isDoStatement(node)
  return isWhile && (node.expression.kind === ts.SyntaxKind.TrueKeyword || all(node, ts.isAwaitExpression).length > 0)
}

/** Every function but one that the owner only calls, or gives to a call that it ends with, such as `map`. */
function outlives(node: ts.Node, owner: ts.Node, seen: Set<ts.Node>): boolean {
  if (seen.has(node)) return false
  seen.add(node)
  const { parent } = node
  if (ts.isParenthesizedExpression(parent)) return !(ts.isCallExpression(parent.parent) && !isAsync(node))
  if (ts.isCallExpression(parent)) return !endsWithCall(parent)
  const isNamed = ts.isFunctionDeclaration(node) || (ts.isVariableDeclaration(parent) && parent.initializer === node)
  const name = ts.isFunctionDeclaration(node) ? node.name : ts.isVariableDeclaration(parent) ? parent.name : undefined
  if (!isNamed || name === undefined || !ts.isIdentifier(name)) return true
  const uses = all(owner, ts.isIdentifier).filter(at => at.text === name.text && at !== name && !isProperty(at))
  return uses.some(at => {
    const isCalled = ts.isCallExpression(at.parent) && (at.parent.expression === at || endsWithCall(at.parent))
    if (!isCalled) return true
    for (let up: ts.Node = at; up !== owner; up = up.parent)
      if (isFunction(up) && up !== node && outlives(up, owner, seen)) return true
    return false
  })
}

const isAsync = (node: ts.Node) => hasModifier(node, ts.SyntaxKind.AsyncKeyword)

const isProperty = (node: ts.Identifier) => ts.isPropertyAccessExpression(node.parent) && node.parent.name === node

function endsWithCall({ expression }: ts.CallExpression): boolean {
  return ts.isPropertyAccessExpression(expression) && endingWithCall.has(expression.name.text)
}

const endingWithCall = words(`
  map flatMap filter find findIndex findLast some every forEach reduce sort toSorted replace replaceAll from groupBy`)

/** Fields, properties and variables that hold one of the containers with these names. */
function usesOf(file: ts.SourceFile, names: ReadonlySet<string>): Site[] {
  return all(file, isMade)
    .filter(({ expression }) => ts.isIdentifier(expression) && names.has(expression.text))
    .map(made => ({ path: file.fileName, name: holderOf(made) }))
}

function holderOf(made: ts.CallExpression | ts.NewExpression): string {
  for (let at: ts.Node | undefined = made; at !== undefined; at = at.parent) {
    if (ts.isBinaryExpression(at) && thisProperty(at.left) !== null)
      return [functionName(at)?.split('.')[0] ?? null, thisProperty(at.left)].filter(name => name !== null).join('.')
    if (ts.isPropertyDeclaration(at))
      return [at.parent.name?.getText() ?? null, at.name.getText()].filter(name => name !== null).join('.')
    if (ts.isVariableDeclaration(at) || ts.isPropertyAssignment(at)) {
      const owner = functionAround(at)
      const name = at.name.getText()
      return owner === null ? name : [functionName(owner), name].filter(part => part !== null).join('.')
    }
  }
  return [functionName(made), calleeOf(made)].filter(name => name !== null).join('.')
}

function hasModifier(node: ts.Node, kind: ts.SyntaxKind): boolean {
  return ts.canHaveModifiers(node) && (ts.getModifiers(node) ?? []).some(modifier => modifier.kind === kind)
}

function all<Found extends ts.Node>(root: ts.Node, is: (node: ts.Node) => node is Found): Found[] {
  const found: Found[] = []
  const visit = (node: ts.Node): void => {
    if (is(node)) found.push(node)
    ts.forEachChild(node, visit)
  }
  visit(root)
  return found
}

function functionAround(node: ts.Node, withoutArrows = false): ts.Node | null {
  for (let at: ts.Node | undefined = node.parent; at !== undefined; at = at.parent)
    if (isFunction(at) && !(withoutArrows && ts.isArrowFunction(at))) return at
  return null
}

/** Name of the function around, or of the variable that holds it; a method's comes after that of its class. */
function functionName(node: ts.Node): string | null {
  for (let at: ts.Node | undefined = node; at !== undefined; at = at.parent) {
    if (ts.isConstructorDeclaration(at)) return at.parent.name?.text ?? null
    const name = (at as { name?: ts.Node }).name
    if ((!isFunction(at) && !ts.isVariableDeclaration(at)) || name === undefined) continue
    const owner = ts.isClassLike(at.parent) ? at.parent.name : undefined
    return owner === undefined ? name.getText() : `${owner.text}.${name.getText()}`
  }
  return null
}
