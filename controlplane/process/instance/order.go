package instance

import (
	"fmt"
	"strconv"
	"strings"

	"ankole.storage/api/longhorn/v1beta2"
)

// Claim says what a process that has an object's name is to the object.
type Claim int

// Claims.
const (
	// Own: made for the order in force, or nobody can tell, since the instance manager names no
	// orders or the object has never recorded one.
	Own Claim = iota
	// Newer: made for a later order of the object than it has recorded. The object was restored, or
	// read before its last change; the process is the newest there is.
	Newer
	// Over: made for an order of the object that is not in force any more.
	Over
	// Theirs: made for another object of the same name, which is gone.
	Theirs
)

// Judge compares the order that a process was made for with the one in the status of the object
// with that UID. inForce: the object has ordered it and not taken that back.
func Judge(uid string, status *v1beta2.InstanceStatus, inForce bool, made string) Claim {
	if made == "" || uid == "" {
		return Own
	}
	of, number := split(made)
	_, recorded := split(status.Order)
	switch {
	case of != uid:
		return Theirs
	case number > recorded:
		return Newer
	case number < recorded || !inForce:
		return Over
	}
	return Own
}

// Superseded says whether a process that was made for an order is not the newest one of the object
// with that UID, for which the recorded order is the newest known: another process was ordered
// after it, or it belongs to another object. Of a process that names no order nobody can tell.
func Superseded(uid, recorded, made string) bool {
	if made == "" || uid == "" {
		return false
	}
	of, number := split(made)
	in, newest := split(recorded)
	return of != uid || in == uid && number < newest
}

// Next is the order after the recorded one.
func Next(uid, recorded string) string {
	of, number := split(recorded)
	if of != uid {
		number = 0
	}
	return fmt.Sprintf("%s/%d", uid, number+1)
}

// split returns the object's UID and the number of an order; 0 where there is none.
func split(order string) (uid string, number int64) {
	uid, text, _ := strings.Cut(order, "/")
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return uid, 0
	}
	return uid, number
}
