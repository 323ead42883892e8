// Package serve is the HTTP server of the /v1 API: it routes requests, lets callers in, has another
// manager answer where that one leads, and writes answers, refusals and streams. What there is to
// ask for it is told by a Table, which package rest puts together.
//
// A Handler gets a Request and returns what is to be encoded, or why not. It reads and changes
// Objects; no handler knows the server. A Kind serves the objects of a kind that are shown by
// themselves, and a Stream is a list that clients can follow.
//
// Three conventions shape the code:
//
//   - Everything that works answers 200, everything refused 500 with an error object, and only what
//     is missing answers 404. Clients match texts, not codes, so the wording of some messages is
//     part of the interface.
//   - Objects say which actions they accept now. An operation that is not built yet is offered by
//     none, and refused with what is missing (Table.Later).
//   - Links are absolute and are built from the request, so that the API works behind proxies that
//     add a prefix.
package serve
