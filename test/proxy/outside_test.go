package proxy

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// facts is the reference's interface: methods, messages, field numbers.
const facts = "../../api/rpc/imrpc/testdata"

const service = "imrpc.ProxyEngineService"

// own are the methods that no release of the reference has, without fields of its numbering.
var own = []string{"Ping", "BackupVolumeList", "BackupVolumeGet", "BackupGet", "BackupConfigMetaGet", "BackupRemove"}

type table struct {
	Methods []struct {
		Name, Request, Response string
		ServerStream            bool
	}
	Messages map[string][]field
}

type field struct {
	Number     int32
	Name, Type string
}

func readTable(t *testing.T, file string) (x table) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(facts, file))
	if err == nil {
		err = json.Unmarshal(text, &x)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// outside is what a client knows: how each method's messages look on the wire.
type outside struct {
	conn     *grpc.ClientConn
	requests map[string]protoreflect.MessageDescriptor
	answers  map[string]protoreflect.MessageDescriptor
	streams  map[string]bool
	called   map[string]bool
}

func newOutside(t *testing.T, conn *grpc.ClientConn) *outside {
	t.Helper()
	methods, engine := readTable(t, "proxy-engine.json"), readTable(t, "engine-messages.json")
	name, file := "facts.proto", &descriptorpb.FileDescriptorProto{}
	syntax := "proto3"
	file.Name, file.Syntax = &name, &syntax
	for _, x := range []table{methods, engine} {
		for message, fields := range x.Messages {
			file.MessageType = append(file.MessageType, describe(message, fields))
		}
	}
	file.MessageType = append(file.MessageType, describe("Empty", nil))
	d, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{conn: conn, requests: map[string]protoreflect.MessageDescriptor{},
		answers: map[string]protoreflect.MessageDescriptor{},
		streams: map[string]bool{}, called: map[string]bool{}}
	for _, m := range methods.Methods {
		o.requests[m.Name], o.answers[m.Name] = d.Messages().ByName(protoreflect.Name(m.Request)),
			d.Messages().ByName(protoreflect.Name(m.Response))
		o.streams[m.Name] = m.ServerStream
		if o.requests[m.Name] == nil || o.answers[m.Name] == nil {
			t.Fatalf("%s: %s or %s is not in the tables", m.Name, m.Request, m.Response)
		}
	}
	for _, m := range own {
		o.requests[m], o.answers[m] = d.Messages().ByName("Empty"), d.Messages().ByName("Empty")
	}
	return o
}

// scalars are types by their names in the tables; enums are numbers on the wire.
var scalars = map[string]descriptorpb.FieldDescriptorProto_Type{
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	"bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL, "int32": descriptorpb.FieldDescriptorProto_TYPE_INT32,
	"int64": descriptorpb.FieldDescriptorProto_TYPE_INT64, "uint64": descriptorpb.FieldDescriptorProto_TYPE_UINT64,
	"BackendStoreDriver": descriptorpb.FieldDescriptorProto_TYPE_INT32,
	"DataEngine":         descriptorpb.FieldDescriptorProto_TYPE_INT32,
	"CloneMode":          descriptorpb.FieldDescriptorProto_TYPE_INT32,
	"ReplicaMode":        descriptorpb.FieldDescriptorProto_TYPE_INT32,
}

func describe(name string, fields []field) *descriptorpb.DescriptorProto {
	m := &descriptorpb.DescriptorProto{Name: &name}
	for _, f := range fields {
		kind, repeated := strings.CutPrefix(f.Type, "repeated ")
		if key, ok := strings.CutPrefix(f.Type, "map<string,"); ok {
			entry := entryName(f.Name)
			e := describe(entry, []field{{1, "key", "string"}, {2, "value", strings.TrimSuffix(key, ">")}})
			yes := true
			e.Options = &descriptorpb.MessageOptions{MapEntry: &yes}
			m.NestedType = append(m.NestedType, e)
			kind, repeated = name+"."+entry, true
		}
		label := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		if repeated {
			label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		}
		d := &descriptorpb.FieldDescriptorProto{Name: &f.Name, Number: &f.Number, Label: &label}
		if scalar, ok := scalars[kind]; ok {
			d.Type = &scalar
		} else {
			message, full := descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, "."+kind
			d.Type, d.TypeName = &message, &full
		}
		m.Field = append(m.Field, d)
	}
	return m
}

// entryName is how protobuf wants the message of a map's entries to be called.
func entryName(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String() + "Entry"
}

// call makes one call with a request in JSON and returns the answer in the same form, names as in
// the tables.
func (o *outside) call(ctx context.Context, method, request string) (map[string]any, error) {
	q, a := dynamicpb.NewMessage(o.requests[method]), dynamicpb.NewMessage(o.answers[method])
	if err := protojson.Unmarshal([]byte(request), q); err != nil {
		return nil, err
	}
	o.called[method] = true
	if err := o.invoke(ctx, method, q, a); err != nil {
		return nil, err
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(a)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal(text, &out)
}

func (o *outside) invoke(ctx context.Context, method string, q, a proto.Message) error {
	if !o.streams[method] {
		return o.conn.Invoke(ctx, "/"+service+"/"+method, q, a)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := o.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/"+method)
	if err == nil {
		err = s.SendMsg(q)
	}
	if err == nil {
		err = s.CloseSend()
	}
	if err == nil {
		err = s.RecvMsg(a)
	}
	return err
}
