"""Writing logs: conversion between record versions, and repair."""
