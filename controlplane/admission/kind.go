package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
)

// Rule says which operations on a kind the webhooks are asked about.
type Rule struct {
	// Plural is the resource name, e.g. "volumes".
	Plural string
	// Validate and Mutate are operations: CREATE, UPDATE, DELETE.
	Validate, Mutate []admissionv1.Operation
}

// request is one question. Old is the zero value on creation, new on deletion.
type request[T client.Object] struct {
	op       admissionv1.Operation
	old, new T
}

func (r request[T]) created() bool { return r.op == admissionv1.Create }
func (r request[T]) updated() bool { return r.op == admissionv1.Update }
func (r request[T]) deleted() bool { return r.op == admissionv1.Delete }

// handler answers reviews of one kind.
type handler interface {
	rule() Rule
	// covers says whether an object is of the kind.
	covers(o client.Object) bool
	// mutate completes the object; nil leaves it as it is.
	mutate(ctx context.Context, w world, op admissionv1.Operation, old, new []byte) (*completion, error)
	validate(ctx context.Context, w world, op admissionv1.Operation, old, new []byte) error
	// lost says what else is lost when the object is deleted, for whoever deletes it; empty: nothing.
	lost(ctx context.Context, w world, old []byte) string
}

// kind implements handler for a type.
type kind[T client.Object] struct {
	plural           string
	create           func() T
	onValidate       []admissionv1.Operation
	onMutate         []admissionv1.Operation
	mutator, checker func(ctx context.Context, w world, r request[T]) error
	// goes says what else is lost with an object; nil: nothing.
	goes func(ctx context.Context, w world, o T) string
}

func (k kind[T]) rule() Rule {
	return Rule{Plural: k.plural, Validate: k.onValidate, Mutate: k.onMutate}
}

func (k kind[T]) decode(op admissionv1.Operation, old, new []byte) (request[T], error) {
	r := request[T]{op: op}
	read := func(text []byte) (T, error) {
		o := k.create()
		if err := json.Unmarshal(text, o); err != nil {
			return o, invalid("cannot read the %s: %v", k.plural, err)
		}
		return o, nil
	}
	var err error
	if op != admissionv1.Create {
		if r.old, err = read(old); err != nil {
			return r, err
		}
	}
	if op != admissionv1.Delete {
		r.new, err = read(new)
	}
	return r, err
}

func (k kind[T]) mutate(ctx context.Context, w world, op admissionv1.Operation, old, new []byte) (*completion, error) {
	if !slices.Contains(k.onMutate, op) {
		return nil, nil
	}
	r, err := k.decode(op, old, new)
	if err != nil {
		return nil, err
	}
	before := r.new.DeepCopyObject()
	if err := k.mutator(ctx, w, r); err != nil {
		return nil, err
	}
	return &completion{before: before, after: r.new}, nil
}

func (k kind[T]) validate(ctx context.Context, w world, op admissionv1.Operation, old, new []byte) error {
	if !slices.Contains(k.onValidate, op) {
		return nil
	}
	r, err := k.decode(op, old, new)
	if err != nil {
		return err
	}
	return k.checker(ctx, w, r)
}

func (k kind[T]) lost(ctx context.Context, w world, old []byte) string {
	if k.goes == nil {
		return ""
	}
	r, err := k.decode(admissionv1.Delete, old, nil)
	if err != nil {
		return ""
	}
	return k.goes(ctx, w, r.old)
}

var (
	createUpdate = []admissionv1.Operation{admissionv1.Create, admissionv1.Update}
	allThree     = []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
	createDelete = []admissionv1.Operation{admissionv1.Create, admissionv1.Delete}
)

// handlers lists the kinds with rules, in the order of the webhook configuration.
var handlers = []handler{
	volumes, engines, replicas, engineImages, instanceManagers, nodes, settings, volumeAttachments, orphans, snapshots,
	recurringJobs, backupTargets, backupVolumes, backups, backupImages,
	backingImages, backingImageManagers, backingImageSources,
}

func byPlural(plural string) (handler, error) {
	for _, h := range handlers {
		if h.rule().Plural == plural {
			return h, nil
		}
	}
	return nil, fmt.Errorf("no rules for %s.%s", plural, v1beta2.Group)
}

// Rules lists what the webhooks are to be asked about.
func Rules() []Rule {
	out := make([]Rule, 0, len(handlers))
	for _, h := range handlers {
		out = append(out, h.rule())
	}
	return out
}

// addFinalizer puts our finalizer on an object that is not being deleted.
func addFinalizer(o client.Object) {
	if o.GetDeletionTimestamp() == nil && !slices.Contains(o.GetFinalizers(), v1beta2.Finalizer) {
		o.SetFinalizers(append(o.GetFinalizers(), v1beta2.Finalizer))
	}
}

// addLabels puts labels on an object; an empty value takes the label away. One that is being
// deleted goes without a label whose value would be refused, and keep it for ever.
func addLabels(o client.Object, labels map[string]string) {
	have := o.GetLabels()
	if have == nil {
		have = map[string]string{}
	}
	for k, v := range labels {
		if v == "" {
			delete(have, k)
			continue
		}
		if o.GetDeletionTimestamp() != nil && len(validation.IsValidLabelValue(v)) > 0 {
			continue
		}
		have[k] = v
	}
	o.SetLabels(have)
}

// removesFinalizer tells whether an update of an object under deletion takes our finalizer away,
// which is always allowed for some kinds.
func removesFinalizer(old, new client.Object) bool {
	return new.GetDeletionTimestamp() != nil &&
		slices.Contains(old.GetFinalizers(), v1beta2.Finalizer) && !slices.Contains(new.GetFinalizers(), v1beta2.Finalizer)
}

// Resource is the plural name.
func (r Rule) Resource() string { return r.Plural }

// Validates lists the operations that are checked.
func (r Rule) Validates() []admissionregistrationv1.OperationType { return operations(r.Validate) }

// Mutates lists the operations in which objects are completed.
func (r Rule) Mutates() []admissionregistrationv1.OperationType { return operations(r.Mutate) }

func operations(ops []admissionv1.Operation) []admissionregistrationv1.OperationType {
	out := make([]admissionregistrationv1.OperationType, 0, len(ops))
	for _, op := range ops {
		out = append(out, admissionregistrationv1.OperationType(op))
	}
	return out
}
