// Reads segments with franz-go's own decoder, CRCs and decompression included, and prints what it counted.
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// As much as one fetch of a partition brings by default (max.partition.fetch.bytes).
const window = 1 << 20

func main() {
	// Fewer collections for a few MiB more, in the peer's favour.
	debug.SetGCPercent(400)
	decompressor := kgo.DefaultDecompressor()
	var batches, records, valueBytes int64
	buffer := make([]byte, 0, 2*window)
	decode := func() {
		response := kmsg.NewFetchResponseTopicPartition()
		response.RecordBatches = buffer
		options := kgo.ProcessFetchPartitionOpts{KeepControlRecords: true, Topic: "bench"}
		partition, _ := kgo.ProcessFetchPartition(options, &response, decompressor, nil)
		fail(partition.Err)
		for _, record := range partition.Records {
			valueBytes += int64(len(record.Value))
		}
		records += int64(len(partition.Records))
		buffer = buffer[:0]
	}
	for _, path := range os.Args[1:] {
		file, err := os.Open(path)
		fail(err)
		in := bufio.NewReaderSize(file, window)
		for {
			header, err := in.Peek(12)
			if err == io.EOF {
				break
			}
			fail(err)
			size := 12 + int(binary.BigEndian.Uint32(header[8:]))
			if len(buffer) > 0 && len(buffer)+size > window {
				decode()
			}
			at := len(buffer)
			for cap(buffer) < at+size {
				buffer = append(buffer[:cap(buffer)], 0)
			}
			buffer = buffer[:at+size]
			_, err = io.ReadFull(in, buffer[at:])
			fail(err)
			batches++
		}
		decode()
		file.Close()
	}
	fmt.Printf("{\"batches\":%d,\"records\":%d,\"value_bytes\":%d}\n", batches, records, valueBytes)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
