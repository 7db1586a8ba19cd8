// What a document says of errors: each JSON response of each operation with the reasons that it names.

const METHODS = ['get', 'post', 'put', 'options'];

/** The node, or the target of its reference. */
export function follow(root, node) {
  if (!node?.$ref) return node;
  return node.$ref.slice(2).split('/').reduce((found, name) => found[name], root);
}

/** Every schema of one member: in these schemas, in their parts, and where they refer to. */
function member(root, schemas, name) {
  return schemas.map((schema) => follow(root, schema)).flatMap((schema) => [
    ...(schema.properties && name in schema.properties ? [schema.properties[name]] : []),
    ...member(root, schema.allOf ?? [], name),
  ]);
}

const listed = (schemas) => schemas.flatMap((schema) => schema.enum ?? []);

/** The reasons of a body: of an operation, in JSON-RPC, or as XRPC names errors. */
function named(root, schema) {
  const { oneOf = [], anyOf = [] } = follow(root, schema);
  const errors = member(root, [schema], 'error');
  const data = member(root, errors, 'data');
  const own = [errors, member(root, errors, 'reason'), member(root, data, 'reason')].flatMap(listed);
  return [...own, ...[...oneOf, ...anyOf].flatMap((one) => named(root, one))];
}

/** Path, method, operation, status and reasons of each error response that has JSON. */
export function errorsOf(root) {
  const errors = [];
  for (const [path, operations] of Object.entries(root.paths)) {
    for (const method of METHODS.filter((one) => one in operations)) {
      const { operationId, responses } = operations[method];
      for (const [status, response] of Object.entries(responses)) {
        const schema = follow(root, response).content?.['application/json']?.schema;
        const reasons = schema ? [...new Set(named(root, schema))].sort() : [];
        if (reasons.length > 0) errors.push({ path, method, operationId, status, reasons });
      }
    }
  }
  return errors;
}
