// Names of one source file: where each is declared, and where it is used. Pure.

import ts from '@typescript/typescript6'

export type Declaration = ts.VariableDeclaration | ts.ParameterDeclaration | ts.BindingElement

type Shared = { readonly name: string; readonly scope: ts.Node; readonly uses: readonly ts.Identifier[] }

export type Binding = Shared &
  (
    | { readonly kind: 'let' | 'const' | 'parameter'; readonly node: Declaration }
    /** A function, a class or an import. */
    | { readonly kind: 'other'; readonly node: ts.Node }
  )

export function isFunction(node: ts.Node): boolean {
  return ts.isFunctionLike(node) && !ts.isFunctionTypeNode(node) && !ts.isMethodSignature(node)
}

/** Each name that the file declares. */
export function bind(file: ts.SourceFile): readonly Binding[] {
  const scopes = new Map<ts.Node, Map<string, { binding: Binding; uses: ts.Identifier[] }>>()
  const declare = (name: ts.Identifier, scope: ts.Node, what: Pick<Binding, 'kind' | 'node'>) => {
    const names = scopes.get(scope) ?? new Map()
    scopes.set(scope, names)
    const uses: ts.Identifier[] = []
    names.set(name.text, { binding: { ...what, name: name.text, scope, uses }, uses })
  }
  const visit = (node: ts.Node): void => {
    const declared = declarationOf(node)
    if (declared !== null) declare(declared.name, declared.scope, declared.what)
    ts.forEachChild(node, visit)
  }
  visit(file)
  const resolve = (node: ts.Node): void => {
    if (ts.isTypeNode(node) && !ts.isExpressionWithTypeArguments(node)) return
    if (ts.isIdentifier(node) && isUse(node)) {
      for (let at: ts.Node | undefined = node; at !== undefined; at = at.parent) {
        const found = scopes.get(at)?.get(node.text)
        if (found === undefined) continue
        found.uses.push(node)
        break
      }
    }
    ts.forEachChild(node, resolve)
  }
  resolve(file)
  return [...scopes.values()].flatMap(names => [...names.values()].map(({ binding }) => binding))
}

type Declared = { readonly name: ts.Identifier; readonly scope: ts.Node; readonly what: Pick<Binding, 'kind' | 'node'> }

function declarationOf(node: ts.Node): Declared | null {
  const isValue = ts.isVariableDeclaration(node) || ts.isParameter(node) || ts.isBindingElement(node)
  if (isValue) {
    if (!ts.isIdentifier(node.name)) return null
    const root = rootOf(node)
    if (ts.isParameter(root)) return { name: node.name, scope: root.parent, what: { kind: 'parameter', node } }
    const isList = ts.isVariableDeclarationList(root.parent)
    const isConst = !isList || (root.parent.flags & ts.NodeFlags.Const) !== 0
    const isVar = isList && (root.parent.flags & ts.NodeFlags.BlockScoped) === 0
    return { name: node.name, scope: scopeOf(root, isVar), what: { kind: isConst ? 'const' : 'let', node } }
  }
  const isOther =
    ts.isFunctionDeclaration(node) ||
    ts.isClassDeclaration(node) ||
    ts.isImportSpecifier(node) ||
    ts.isNamespaceImport(node) ||
    ts.isImportClause(node)
  if (!isOther || node.name === undefined || !ts.isIdentifier(node.name)) return null
  return { name: node.name, scope: scopeOf(node, false), what: { kind: 'other', node } }
}

/** The variable or parameter that a pattern takes apart. */
function rootOf(node: Declaration): ts.VariableDeclaration | ts.ParameterDeclaration {
  return ts.isBindingElement(node) ? rootOf(node.parent.parent) : node
}

function scopeOf(node: ts.Node, isVar: boolean): ts.Node {
  for (let at: ts.Node = node.parent; ; at = at.parent) {
    const isBlock = ts.isBlock(at) || ts.isCaseBlock(at) || ts.isCatchClause(at)
    const isLoop = ts.isForStatement(at) || ts.isForOfStatement(at) || ts.isForInStatement(at)
    if (ts.isSourceFile(at) || isFunction(at) || (!isVar && (isBlock || isLoop))) return at
  }
}

/** Neither the name of a property nor the name in a declaration. */
function isUse(node: ts.Identifier): boolean {
  const { parent } = node
  if (ts.isShorthandPropertyAssignment(parent)) return true
  if (ts.isBindingElement(parent)) return parent.initializer === node
  if (ts.isQualifiedName(parent)) return false
  return (parent as { name?: ts.Node }).name !== node
}
