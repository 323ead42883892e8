package rest

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"ankole.storage/rest/resource"
)

// text is an encoded member of a list. It belongs to all who hold it and is never changed.
type text struct {
	json []byte
	// cuts are the places in json, in order, where the base of the caller's URLs is left out.
	cuts []int
}

// appendTo adds the text for a caller whose URLs begin with base, given as in JSON.
func (t *text) appendTo(to []byte, base string) []byte {
	at := 0
	for _, cut := range t.cuts {
		to = append(to, t.json[at:cut]...)
		to = append(to, base...)
		at = cut
	}
	return append(to, t.json[at:]...)
}

func (t *text) equal(o *text) bool {
	return t == o || bytes.Equal(t.json, o.json) && slices.Equal(t.cuts, o.cuts)
}

// member is one of a list, with its id.
type member struct {
	id string
	*text
}

// emptyEnd is how a list without members ends; its last two bytes end every list.
const emptyEnd = `[]}`

// listing is a list of a caller as it is sent, cut into its members. It is not changed once it is
// made: streams compare it with the next one.
type listing struct {
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

// newListing makes a list without members from a collection.
func newListing(of encoded, base string) (*listing, error) {
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
	return &listing{typeID: of.MemberType(), head: append(head, '['), base: string(quoted[1 : len(quoted)-1])}, nil
}

// listingOf cuts the answer of a list into its members.
func listingOf(answer any) (*listing, error) {
	if l, ok := answer.(*listing); ok {
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
		l.members = append(l.members, member{id, &text{json: json}})
	}
	return l, nil
}

// size is how many bytes the list takes.
func (l *listing) size() int {
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
func (l *listing) appendTo(to []byte) []byte {
	to = append(slices.Grow(to, l.size()), l.head...)
	return l.appendMembers(to, l.members)
}

// appendMembers adds members, and the end of the message.
func (l *listing) appendMembers(to []byte, members []member) []byte {
	for i, m := range members {
		if i > 0 {
			to = append(to, ',')
		}
		to = m.appendTo(to, l.base)
	}
	return append(to, emptyEnd[1:]...)
}

// equal tells whether two lists of the same caller are the same text.
func (l *listing) equal(o *listing) bool {
	return bytes.Equal(l.head, o.head) && slices.EqualFunc(l.members, o.members, func(a, b member) bool {
		return a.id == b.id && a.text.equal(b.text)
	})
}

// keyed tells whether the list is in order of ids that differ, as all lists of objects are.
func (l *listing) keyed() bool {
	for i, m := range l.members {
		if m.id == "" || i > 0 && m.id <= l.members[i-1].id {
			return false
		}
	}
	return true
}

// since says what has become of the members since another list of the same caller: those that were
// added or have changed, and the ids of those that are gone.
func (l *listing) since(before *listing) (changed []member, removed []string) {
	old := before.members
	for _, m := range l.members {
		for len(old) > 0 && old[0].id < m.id {
			removed = append(removed, old[0].id)
			old = old[1:]
		}
		if len(old) > 0 && old[0].id == m.id {
			same := m.text.equal(old[0].text)
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
func (l *listing) appendChanges(to []byte, before *listing) ([]byte, error) {
	changed, removed := l.since(before)
	head, err := encode(resource.Changes[struct{}]{Type: resource.ChangesType, ResourceType: l.typeID,
		Removed: orEmpty(removed), Data: []struct{}{}})
	if err != nil {
		return nil, err
	}
	to = append(to, head[:len(head)-len(emptyEnd)+1]...)
	return l.appendMembers(to, changed), nil
}

// with is the list with other texts of some members; nil takes one away.
func (l *listing) with(texts map[string]*text) *listing {
	after := *l
	after.members = slices.Clone(l.members)
	for id, t := range texts {
		i, have := slices.BinarySearchFunc(after.members, id, func(m member, id string) int {
			return strings.Compare(m.id, id)
		})
		switch {
		case t != nil && have:
			after.members[i].text = t
		case t != nil:
			after.members = slices.Insert(after.members, i, member{id, t})
		case have:
			after.members = slices.Delete(after.members, i, i+1)
		}
	}
	return &after
}
