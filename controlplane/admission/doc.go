// Package admission decides which objects may be stored, and completes them first.
//
// For each kind there is a function that fills in what is missing (mutate) and one that refuses
// what cannot be (check). Both are functions of the object before, the object after, and a struct
// of facts about the cluster; they read nothing themselves, so tests are tables and other callers
// (package rest) can ask the same questions before they write. Server gathers the facts live from
// the API server and answers the webhooks' reviews.
//
// A refusal is a *Rejection. Its text names the object and says what to do; parts of some texts are
// matched by clients and are held by tests.
package admission
