// Package grammar keeps an answer to a grammar, token by token: JSON values, any or those of a JSON schema.
//
// A schema becomes a network of states over bytes whose edges are ranges of bytes or calls of other parts of the
// network; calls may recur, as JSON values do. What may follow a text is a set of states, each with the calls it is in.
// Such sets are made as they are met and remembered, with where each byte leads and with the mask of the tokens that
// lead anywhere. So a mask is worked out once for every kind of place in a text, over a trie of the vocabulary, and
// looked up afterwards.
//
// States from which no value can be completed are taken out beforehand: whatever the mask allows can be gone on with,
// as long as the vocabulary has every byte as a token.
//
// # What of JSON Schema there is
//
// Types and lists of them; enum and const; properties, required, additionalProperties (false, true, or a schema where
// there are no properties); items, prefixItems, minItems, maxItems; minLength, maxLength, pattern, and format of date,
// time, date-time, uuid; minimum, maximum, exclusiveMinimum and exclusiveMaximum of integers, minimum and maximum of
// numbers where they are integers; anyOf, oneOf of alternatives that exclude each other, allOf of one; $ref within the
// schema, also to itself. Annotations such as title and description are ignored. Everything else is refused by its
// name.
//
// What is generated is part of what the schema allows: properties come in the schema's order, those that it does not
// name never, numbers have up to 15 digits before and behind the point, and white space is one space, or a line break
// with up to 20 spaces, where JSON has room for it. Patterns are those of Go's package regexp, and match anywhere in
// the text unless they are anchored; the text then is the match alone.
package grammar
