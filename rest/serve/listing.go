package serve

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"ankole.storage/rest/resource"
)

// Text is an encoded member of a list. It belongs to all who hold it and is never changed.
type Text struct {
	json []byte
	// cuts are the places in json, in order, where the base of the caller's URLs is left out.
	cuts []int
}

// appendTo adds the text for a caller whose URLs begin with base, given as in JSON.
func (t *Text) appendTo(to []byte, base string) []byte {
	at := 0
	for _, cut := range t.cuts {
		to = append(to, t.json[at:cut]...)
		to = append(to, base...)
		at = cut
	}
	return append(to, t.json[at:]...)
}

// Equal tells whether two texts are the same.
func (t *Text) Equal(o *Text) bool {
	return t == o || bytes.Equal(t.json, o.json) && slices.Equal(t.cuts, o.cuts)
}

// linkStart is how a link of a resource begins in the encoded envelope, without the base. An id
// cannot look like it: a quote in a string is escaped.
var linkStart = []byte(`:"/v1/`)

// NewText encodes what was made for a request without a base, with the envelope that it begins
// with. The base is left out of the links, and added for each caller.
func NewText(view any, of *resource.Resource) (*Text, error) {
	json, err := encode(view)
	if err != nil {
		return nil, err
	}
	envelope, err := encode(of)
	if err != nil {
		return nil, err
	}
	envelope = envelope[:len(envelope)-1]
	if !bytes.HasPrefix(json, envelope) {
		return nil, errors.New("it does not begin with its envelope")
	}
	t := &Text{json: json}
	for at := 0; ; {
		next := bytes.Index(envelope[at:], linkStart)
		if next < 0 {
			break
		}
		at += next + len(`:"`)
		t.cuts = append(t.cuts, at)
	}
	if links := len(of.Links) + len(of.Actions); len(t.cuts) != links {
		return nil, fmt.Errorf("%d of its %d links were found", len(t.cuts), links)
	}
	return t, nil
}

// member is one of a list, with its id.
type member struct {
	id string
	*Text
}

// emptyEnd is how a list without members ends; its last two bytes end every list.
const emptyEnd = `[]}`

// Listing is a list of a caller as it is sent, cut into its members. It is not changed once it is
// made: streams compare it with the next one.
type Listing struct {
	typeID string
	// head is what stands before the first member.
	head []byte
	// base is what the caller's URLs begin with, as in JSON.
	base    string
	members []member
}

// encoded is a collection as package resource has it, whatever its members are.
type encoded interface {
	Members() iter.Seq2[string, any]
	Bare() any
	MemberType() string
}

// NewListing makes a list from a collection without members; room is how many there will be. Its
// members are those that Add gives it, in order of their ids.
func NewListing(q *Request, of encoded, room int) (*Listing, error) {
	l, err := newListing(of, q.base)
	if err != nil {
		return nil, err
	}
	l.members = make([]member, 0, room)
	return l, nil
}

// Add adds a member.
func (l *Listing) Add(id string, t *Text) { l.members = append(l.members, member{id, t}) }

// newListing makes a list without members from a collection.
func newListing(of encoded, base string) (*Listing, error) {
	head, err := encode(of.Bare())
	if err != nil {
		return nil, err
	}
	quoted, err := encode(base)
	if err != nil {
		return nil, err
	}
	head, ok := bytes.CutSuffix(head, []byte(emptyEnd))
	if !ok {
		return nil, fmt.Errorf("a collection that does not end with its members: %s", head)
	}
	return &Listing{typeID: of.MemberType(), head: append(head, '['), base: string(quoted[1 : len(quoted)-1])}, nil
}

// listingOf cuts the answer of a list into its members.
func listingOf(answer any) (*Listing, error) {
	if l, ok := answer.(*Listing); ok {
		return l, nil
	}
	c, ok := answer.(encoded)
	if !ok {
		return nil, fmt.Errorf("%T is no list", answer)
	}
	l, err := newListing(c, "")
	if err != nil {
		return nil, err
	}
	for id, value := range c.Members() {
		json, err := encode(value)
		if err != nil {
			return nil, err
		}
		l.members = append(l.members, member{id, &Text{json: json}})
	}
	return l, nil
}

// size is how many bytes the list takes.
func (l *Listing) size() int {
	n := len(l.head) + len(emptyEnd) - 1
	if len(l.members) > 0 {
		n-- // a comma less than members
	}
	for _, m := range l.members {
		n += len(m.json) + len(m.cuts)*len(l.base) + 1
	}
	return n
}

// appendTo adds the whole list.
func (l *Listing) appendTo(to []byte) []byte {
	to = append(slices.Grow(to, l.size()), l.head...)
	return l.appendMembers(to, l.members)
}

// appendMembers adds members, and the end of the message.
func (l *Listing) appendMembers(to []byte, members []member) []byte {
	for i, m := range members {
		if i > 0 {
			to = append(to, ',')
		}
		to = m.appendTo(to, l.base)
	}
	return append(to, emptyEnd[1:]...)
}

// equal tells whether two lists of the same caller are the same text.
func (l *Listing) equal(o *Listing) bool {
	return bytes.Equal(l.head, o.head) && slices.EqualFunc(l.members, o.members, func(a, b member) bool {
		return a.id == b.id && a.Text.Equal(b.Text)
	})
}

// keyed tells whether the list is in order of ids that differ, as all lists of objects are.
func (l *Listing) keyed() bool {
	for i, m := range l.members {
		if m.id == "" || i > 0 && m.id <= l.members[i-1].id {
			return false
		}
	}
	return true
}

// since says what has become of the members since another list of the same caller: those that were
// added or have changed, and the ids of those that are gone.
func (l *Listing) since(before *Listing) (changed []member, removed []string) {
	old := before.members
	for _, m := range l.members {
		for len(old) > 0 && old[0].id < m.id {
			removed = append(removed, old[0].id)
			old = old[1:]
		}
		if len(old) > 0 && old[0].id == m.id {
			same := m.Text.Equal(old[0].Text)
			old = old[1:]
			if same {
				continue
			}
		}
		changed = append(changed, m)
	}
	for _, m := range old {
		removed = append(removed, m.id)
	}
	return changed, removed
}

// appendChanges adds the message that makes this list of another one of the same caller.
func (l *Listing) appendChanges(to []byte, before *Listing) ([]byte, error) {
	changed, removed := l.since(before)
	head, err := encode(resource.Changes[struct{}]{Type: resource.ChangesType, ResourceType: l.typeID,
		Removed: append([]string{}, removed...), Data: []struct{}{}})
	if err != nil {
		return nil, err
	}
	to = append(to, head[:len(head)-len(emptyEnd)+1]...)
	return l.appendMembers(to, changed), nil
}

// With is the list with other texts of some members; nil takes one away.
func (l *Listing) With(texts map[string]*Text) *Listing {
	after := *l
	after.members = slices.Clone(l.members)
	for id, t := range texts {
		i, have := slices.BinarySearchFunc(after.members, id, func(m member, id string) int {
			return strings.Compare(m.id, id)
		})
		switch {
		case t != nil && have:
			after.members[i].Text = t
		case t != nil:
			after.members = slices.Insert(after.members, i, member{id, t})
		case have:
			after.members = slices.Delete(after.members, i, i+1)
		}
	}
	return &after
}
